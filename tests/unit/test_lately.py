"""What a worker did within the last minute."""

from filaviva_worker.lately import Lately


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_was_done_within_the_last_minute_is_told_by_queue_and_type() -> None:
    clock = Clock()
    lately = Lately(clock=clock)
    llm, mail = lately.of("llm"), lately.of("mail")
    for _ in range(3):
        llm.started("a.b")
    llm.ended("a.b", "succeeded", 0.25)
    llm.ended("a.b", "retry", 0.5)
    mail.started("c.d")

    clock.now += 10

    assert lately.shown() == {
        "seconds": 10,
        "work": [
            {
                "queue": "llm",
                "type": "a.b",
                "started": 3,
                "succeeded": 1,
                "costUsd": 0.75,
                "retry": 1,
            },
            {"queue": "mail", "type": "c.d", "started": 1},
        ],
    }


def test_what_is_older_than_a_minute_is_told_no_more() -> None:
    clock = Clock()
    lately = Lately(clock=clock)
    tally = lately.of("llm")
    told = []
    for second in range(0, 200, 5):
        if second < 100:
            tally.started("a.b")
        clock.now += 5
        told.append(lately.shown())

    assert max(each["seconds"] for each in told) == 60
    assert [len(each["work"]) for each in told[-8:]] == [0] * 8
    assert told[15]["work"][0]["started"] == 12
