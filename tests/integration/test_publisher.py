"""Publishing on a real broker: what became of each message is told, and nothing else."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from filaviva.broker.apply import apply
from filaviva.broker.connection import user_of
from filaviva.broker.messages import Confirmed, NotReady, Offending, Outgoing, Unknown, Unroutable
from filaviva.broker.publisher import Publisher
from filaviva.broker.topology import Topology
from fixtures.amqp import Proxy, channel, drained
from fixtures.waiting import until

TOPOLOGY = Topology()


def wake_up(number: int, **changes: object) -> Outgoing:
    fields = {
        "exchange": TOPOLOGY.jobs,
        "routing_key": "llm",
        "body": b"{}",
        "message_id": f"message-{number}",
        "type": "filaviva.wakeup.v1",
    }
    return Outgoing(**{**fields, **changes})  # type: ignore[arg-type]


def offending(number: int) -> Outgoing:
    """A message that makes every version close the channel with 406, as one too large does."""
    return wake_up(number, headers={"CC": "not a list"})


@pytest.fixture
async def publisher(vhost: str) -> AsyncIterator[Publisher]:
    await apply(vhost, TOPOLOGY.declarations(["llm"]))
    publisher = Publisher(vhost, confirm_timeout=5)
    yield publisher
    await publisher.close()


@pytest.mark.broker
async def test_a_confirmed_batch_is_in_the_queue_in_order_and_persistent(
    publisher: Publisher, vhost: str
) -> None:
    outcomes = await publisher.publish([wake_up(number) for number in range(1200)])

    assert outcomes == [Confirmed()] * 1200
    found = await drained(vhost, TOPOLOGY.work("llm"))
    assert [m.header.properties.message_id for m in found] == [f"message-{n}" for n in range(1200)]
    assert {m.header.properties.delivery_mode for m in found} == {2}
    assert found[0].header.properties.message_type == "filaviva.wakeup.v1"
    assert found[0].header.properties.content_type == "application/cloudevents+json"


@pytest.mark.broker
async def test_an_unroutable_message_is_returned_and_its_neighbours_are_confirmed(
    publisher: Publisher,
) -> None:
    outcomes = await publisher.publish([wake_up(1), wake_up(2, routing_key="gone"), wake_up(3)])

    assert outcomes[0] == outcomes[2] == Confirmed()
    assert isinstance(outcomes[1], Unroutable)
    assert "'gone'" in outcomes[1].why


@pytest.mark.broker
async def test_the_broker_vouches_for_who_signs_a_message(publisher: Publisher, vhost: str) -> None:
    forger = Publisher(vhost, confirm_timeout=5)
    forger._user = "somebody-else"  # noqa: SLF001 - what no honest publisher would say

    outcomes = await publisher.publish([wake_up(1, signed=True), wake_up(2)])
    (refused,) = await forger.publish([wake_up(3, signed=True)])
    await forger.close()

    assert outcomes == [Confirmed()] * 2
    assert isinstance(refused, Offending)
    found = await drained(vhost, TOPOLOGY.work("llm"))
    assert [m.header.properties.user_id for m in found] == [user_of(vhost), None]


async def test_without_mandatory_nobody_listening_is_no_fault(publisher: Publisher) -> None:
    told = wake_up(1, exchange=TOPOLOGY.lifecycle, routing_key="job.succeeded", mandatory=False)

    assert await publisher.publish([told]) == [Confirmed()]


@pytest.mark.broker
async def test_an_unroutable_message_on_jobs_retry_or_dead_is_never_confirmed(
    publisher: Publisher, vhost: str
) -> None:
    async with channel(vhost) as other:
        await other.queue_unbind(TOPOLOGY.retry_requests, TOPOLOGY.retry, "#")
        await other.queue_unbind(TOPOLOGY.dead_letters, TOPOLOGY.dead, "#")

    outcomes = await publisher.publish(
        [
            wake_up(number, exchange=exchange, routing_key="nobody")
            for number, exchange in enumerate([TOPOLOGY.jobs, TOPOLOGY.retry, TOPOLOGY.dead])
        ]
    )

    assert all(isinstance(outcome, Unroutable) for outcome in outcomes)


@pytest.mark.broker
async def test_one_offending_message_does_not_block_its_batch(
    publisher: Publisher, vhost: str
) -> None:
    batch = [wake_up(number) for number in range(20)]
    batch[7] = offending(7)
    batch[13] = offending(13)

    outcomes = await publisher.publish(batch)

    assert isinstance(outcomes[7], Offending)
    assert isinstance(outcomes[13], Offending)
    assert outcomes.count(Confirmed()) == 18
    there = {m.header.properties.message_id for m in await drained(vhost, TOPOLOGY.work("llm"))}
    assert there == {f"message-{n}" for n in range(20)} - {"message-7", "message-13"}


async def test_what_does_not_fit_into_amqp_is_offending_before_it_is_sent(
    publisher: Publisher,
) -> None:
    outcomes = await publisher.publish([wake_up(1, routing_key="x" * 300), wake_up(2)])

    assert isinstance(outcomes[0], Offending)
    assert outcomes[1] == Confirmed()


async def test_a_long_correlation_id_is_left_to_the_envelope(
    publisher: Publisher, vhost: str
) -> None:
    assert await publisher.publish([wake_up(1, correlation_id="é" * 200)]) == [Confirmed()]

    [message] = await drained(vhost, TOPOLOGY.work("llm"))
    assert message.header.properties.correlation_id is None


@pytest.mark.broker
async def test_a_missing_exchange_is_not_ready_and_blocks_nothing_else(
    publisher: Publisher,
) -> None:
    batch = [wake_up(number) for number in range(10)]
    batch[3] = wake_up(3, exchange="nowhere")
    batch[8] = wake_up(8, exchange="nowhere")

    outcomes = await publisher.publish(batch)

    assert isinstance(outcomes[3], NotReady)
    assert isinstance(outcomes[8], NotReady)
    assert outcomes.count(Confirmed()) == 8


@pytest.mark.broker
async def test_a_queue_that_is_full_refuses_and_the_message_stays_ours(
    publisher: Publisher, vhost: str
) -> None:
    arguments = {"x-queue-type": "quorum", "x-max-length": 1, "x-overflow": "reject-publish"}
    async with channel(vhost) as other:
        await other.queue_declare("small", durable=True, arguments=arguments)
        await other.queue_bind("small", TOPOLOGY.jobs, "small")

    async def refused() -> bool:
        [outcome] = await publisher.publish([wake_up(1, routing_key="small")])
        return isinstance(outcome, NotReady)

    await until(refused)  # a quorum queue overshoots its limit by a few


async def test_two_copies_of_one_id_in_a_batch_are_told_apart(publisher: Publisher) -> None:
    outcomes = await publisher.publish([wake_up(1), wake_up(1, routing_key="gone"), wake_up(2)])

    assert outcomes[0] == outcomes[2] == Confirmed()
    assert isinstance(outcomes[1], Unroutable)


async def test_batches_at_the_same_time_do_not_harm_each_other(publisher: Publisher) -> None:
    good = [publisher.publish([wake_up(100 * n + i) for i in range(50)]) for n in range(1, 9)]

    bad, *rest = await asyncio.gather(publisher.publish([offending(1)]), *good)

    assert isinstance(bad[0], Offending)
    assert all(outcome == Confirmed() for outcomes in rest for outcome in outcomes)


async def through(publisher: Publisher) -> bool:
    return await publisher.publish([wake_up(0)]) == [Confirmed()]


@pytest.mark.broker
async def test_a_cut_connection_is_unknown_and_the_next_batch_gets_through(vhost: str) -> None:
    await apply(vhost, TOPOLOGY.declarations(["llm"]))
    async with Proxy(vhost) as proxy:
        publisher = Publisher(proxy.url)
        assert await through(publisher)
        proxy.silence()
        running = asyncio.create_task(publisher.publish([wake_up(1), wake_up(2)]))
        await until(lambda: not publisher.healthy)

        proxy.cut()

        assert all(isinstance(outcome, Unknown) for outcome in await running)
        proxy.resume()
        await until(lambda: through(publisher))
        assert publisher.healthy
        await publisher.close()


async def test_a_silent_broker_is_unknown_in_time_and_may_have_the_message(vhost: str) -> None:
    await apply(vhost, TOPOLOGY.declarations(["llm"]))
    async with Proxy(vhost) as proxy:
        publisher = Publisher(proxy.url, confirm_timeout=0.5)
        assert await through(publisher)
        proxy.silence()

        [outcome] = await publisher.publish([wake_up(1)])

        assert isinstance(outcome, Unknown)
        assert not publisher.healthy
        proxy.resume()
        await until(lambda: through(publisher))
        assert publisher.healthy
        await publisher.close()


async def test_it_stays_connected_until_it_is_stopped(vhost: str) -> None:
    stop = asyncio.Event()
    async with Proxy(vhost) as proxy:
        publisher = Publisher(proxy.url)
        running = asyncio.create_task(publisher.run(stop))
        await until(lambda: publisher.healthy)

        proxy.cut()

        await until(lambda: proxy.accepted == 2 and publisher.healthy)
        stop.set()
        await running
        assert not publisher.connected


async def test_our_own_cancel_is_a_cancel(publisher: Publisher) -> None:
    await publisher.publish([wake_up(0)])
    departed = asyncio.Event()
    batch = [wake_up(number) for number in range(1000)]
    running = asyncio.create_task(publisher.publish(batch, sent=departed.set))
    await departed.wait()

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    await until(lambda: through(publisher))


async def test_an_absent_broker_is_unknown_at_once_and_says_why() -> None:
    publisher = Publisher("amqp://nobody@127.0.0.1:1/")

    [first] = await publisher.publish([wake_up(1)])
    [second] = await publisher.publish([wake_up(2)])

    assert isinstance(first, Unknown)
    assert isinstance(second, Unknown)
    assert not publisher.healthy
    assert publisher.problems()[0].startswith("broker: ")
    await publisher.close()
