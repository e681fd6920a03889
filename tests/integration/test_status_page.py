"""The page an end user sees: by a signed link alone, in words, and nothing of it can be abused."""

import json
import re
import time
from typing import Any
from urllib.parse import parse_qsl
from uuid import UUID

import pytest
from starlette.requests import Request

from filaviva.operations import jobs
from filaviva.operations.jobs import Item
from filaviva.operations.links import RIGHTS, Link, Links
from filaviva.outcome import ErrorClass
from filaviva_producer.page.view import failure
from filaviva_producer.page.visit import Wanted, read_link, words_for
from filaviva_producer.page.words import EN, LANGUAGES, PT, Words
from fixtures.documents import Document
from fixtures.producer import LINKS, SECRET, Producer
from fixtures.sse import listening
from fixtures.status_page import HOSTILE, Pages, link, set_job
from fixtures.timelines import batched, happens, items_end, submitted
from fixtures.waiting import until

OTHERS = Links("another secret of more than thirty-two characters")


async def look(pages: Pages, address: str, status: int = 200, **headers: str) -> Document:
    """Look at a page."""
    answer = await pages.client.get(address, headers=headers)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return Document.of(answer.text)


async def test_a_new_job_is_told_in_words(producer: Producer, pages: Pages) -> None:
    _, job_id = await submitted(producer)

    page = await look(pages, link(job_id))

    assert page.text("h1") == "Waiting to start"
    assert page.title == "Waiting to start · Test echo"
    assert "You may close this page" in page.body
    assert str(job_id) in page.body
    assert page.attributes("html") == {"lang": "en"}


@pytest.mark.parametrize(
    ("chosen", "accepted", "said"),
    [
        ({}, "pt-BR,pt;q=0.9,en;q=0.8", PT),
        ({}, "de,en;q=0.5", EN),
        ({}, "", EN),
        ({"lang": "en"}, "pt", EN),
        ({"lang": "pt"}, "en", PT),
        ({"lang": "xx"}, "pt", PT),
    ],
)
def test_the_language_is_the_one_that_was_chosen_or_the_browsers(
    chosen: dict[str, str], accepted: str, said: Words
) -> None:
    headers = [(b"accept-language", accepted.encode())]

    assert words_for(Request({"type": "http", "headers": headers}), Wanted.of(chosen)) is said


async def test_it_speaks_the_language_of_its_reader(producer: Producer, pages: Pages) -> None:
    _, job_id = await submitted(producer)

    page = await look(pages, link(job_id), **{"Accept-Language": "pt-BR"})
    chosen = await look(pages, link(job_id, lang="en"), **{"Accept-Language": "pt-BR"})

    assert (page.text("h1"), page.attributes("html")) == ("Aguardando início", {"lang": "pt-BR"})
    assert (chosen.text("h1"), chosen.attributes("html")) == ("Waiting to start", {"lang": "en"})
    assert {"English", "Português"} <= set(page.body.split())


async def test_a_running_job_shows_its_verified_progress(producer: Producer, pages: Pages) -> None:
    _, job_id = await submitted(producer)
    progress = {"done": 7, "total": 10, "message": "reading page 8"}
    await set_job(producer, job_id, "running", progress=progress)

    page = await look(pages, link(job_id))
    portuguese = await look(pages, link(job_id, lang="pt"))

    assert page.text("h1") == "In progress"
    assert "7 of 10 completed" in page.body
    assert "reading page 8" in page.body
    assert page.attributes("progress")["value"] == "7"
    assert page.attributes("progress")["max"] == "10"
    assert "7 de 10 concluídos" in portuguese.body


async def test_a_result_is_shown_by_names_and_values(producer: Producer, pages: Pages) -> None:
    _, job_id = await submitted(producer)
    result = {"invoiceNumber": "42", "totalAmount": 12.5, "paid": True, "tags": ["a", "b"]}
    await set_job(producer, job_id, "running", "succeeded", result=result)

    page = await look(pages, link(job_id))

    assert page.text("h1") == "Completed"
    assert dict(zip(page.all("dt"), page.all("dd"), strict=True)) == {
        "Invoice number": "42",
        "Paid": "yes",
        "Tags": "a, b",
        "Total amount": "12.5",
    }
    assert "You may close" not in page.body


@pytest.mark.parametrize(
    ("error", "said", "unsaid"),
    [
        (
            {"class": "unexpected", "code": "KeyError", "message": "'secret-id'"},
            "Something went wrong on our side.",
            ("KeyError", "secret-id", "unexpected"),
        ),
        (
            {"class": "upstream", "code": "ServerError", "message": "http://10.0.0.3/ said 500"},
            "had a fault of its own",
            ("ServerError", "10.0.0.3"),
        ),
        (
            {"class": "refused", "code": "Refused", "message": "the document is not an invoice"},
            "the document is not an invoice",
            ("Refused",),
        ),
        (
            {"class": "timeout", "code": "DeadlineExpired", "message": "its deadline passed"},
            "could not start before its deadline",
            ("DeadlineExpired",),
        ),
        ({"class": "of the future", "code": "X9"}, "Something went wrong", ("X9", "of the future")),
    ],
)
def test_a_failure_is_told_in_human_terms(
    error: dict[str, Any], said: str, unsaid: tuple[str, ...]
) -> None:
    told = str(failure(json.dumps(error), EN))

    assert said in told
    assert [word for word in unsaid if word in told] == []


@pytest.mark.parametrize("kind", ErrorClass.__args__)
def test_every_class_of_error_has_words_in_every_language(kind: str) -> None:
    told = [failure(json.dumps({"class": kind}), words) for words in LANGUAGES.values()]

    assert all(one.what and one.helps for one in told)
    assert len({one.what for one in told}) == len(LANGUAGES)


async def test_what_failed_is_on_the_page(producer: Producer, pages: Pages) -> None:
    _, job_id = await submitted(producer)
    error = {"class": "upstream", "code": "ServerError", "message": "http://10.0.0.3/ said 500"}
    await set_job(producer, job_id, "running", "failed", error=error)

    page = await look(pages, link(job_id))

    assert page.text("h1") == "Not completed"
    assert "had a fault of its own" in page.body
    assert [word for word in ("ServerError", "10.0.0.3", "upstream") if word in page.source] == []


async def test_a_pause_says_when_it_goes_on(producer: Producer, pages: Pages) -> None:
    _, job_id = await submitted(producer)
    await producer.execute(
        "UPDATE filaviva.jobs SET attempt = 1, not_before = now() + interval '5 minutes'"
    )

    page = await look(pages, link(job_id))

    assert page.text("h1") == "Waiting to try again"
    assert "in about 5 minutes" in page.body


async def test_a_forged_or_foreign_link_opens_nothing(producer: Producer, pages: Pages) -> None:
    _, job_id = await submitted(producer)
    good, other = link(job_id), UUID(int=9)
    forged = [
        good.replace(str(job_id), str(other)),
        good.replace("can=cancel.retry", "can=view"),
        re.sub(r"expires=\d+", f"expires={int(time.time()) + 99999}", good),
        re.sub("signature=(.)", lambda m: "signature=" + "ab"[m[1] == "a"], good),
        good.partition("&signature")[0],
        f"/jobs/{job_id}",
        "/jobs/nonsense?signature=%C3%A4",
        OTHERS.make(job_id, RIGHTS, expires=int(time.time()) + 99),
    ]

    refused = [await look(pages, address, 403) for address in forged]

    assert {page.text("h1") for page in refused} == {"This link does not open anything"}
    assert all("Waiting" not in page.body for page in refused)


async def test_an_expired_link_is_refused_kindly(producer: Producer, pages: Pages) -> None:
    _, job_id = await submitted(producer)

    page = await look(pages, link(job_id, seconds=-1), 403)
    portuguese = await look(pages, link(job_id, seconds=-1, lang="pt"), 403)

    assert "which is over" in page.body
    assert "que já passou" in portuguese.body


async def test_what_is_not_kept_any_more_is_said_to_be_gone(pages: Pages) -> None:
    page = await look(pages, link(UUID(int=5)), 410)

    assert page.text("h1") == "This is not kept any more"


async def test_nothing_hostile_leaves_its_place(producer: Producer, pages: Pages) -> None:
    _, job_id = await submitted(producer)
    texts = {
        "labels": {"title": HOSTILE},
        "progress": {"done": 1, "total": 2, "message": HOSTILE},
        "error": {"class": "terminal", "code": HOSTILE, "message": HOSTILE},
        "result": {HOSTILE: HOSTILE, "link": "javascript:alert(1)"},
    }
    plain = await look(pages, link(job_id))

    seen = []
    for states in (("running",), ("failed",)):
        await set_job(producer, job_id, *states, **texts)
        seen.append(await look(pages, link(job_id)))
    await set_job(producer, job_id, result=[{"deep": HOSTILE}])
    seen.append(await look(pages, link(job_id, note=HOSTILE.replace("&", ""), after=HOSTILE)))

    for page in seen:
        assert HOSTILE in page.body or HOSTILE.replace('"', '\\"') in page.body
        assert page.count("script") <= plain.count("script")
        assert page.count("img") == 0
        assert "49" not in page.body.replace(str(job_id), "")
        assert page.handlers == []
        assert all(not one.startswith("javascript") for one in page.addresses)


async def test_nothing_on_the_page_comes_from_elsewhere(producer: Producer, pages: Pages) -> None:
    _, job_id = await submitted(producer)

    answer = await pages.client.get(link(job_id))
    page = Document.of(answer.text)

    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert [one for one in page.addresses if "//" in one] == []
    assert page.inline == []
    for address in (one for one in page.addresses if one.startswith("assets/")):
        asset = await pages.client.get(f"/jobs/{address}")
        assert asset.status_code == 200
        assert "immutable" in asset.headers["cache-control"]


async def test_the_page_reloads_itself_only_where_there_is_no_script(
    producer: Producer, pages: Pages
) -> None:
    _, job_id = await submitted(producer)

    page = await look(pages, link(job_id))
    stopped = await look(pages, link(job_id, refresh="off"))
    await set_job(producer, job_id, "running", "succeeded")
    final = await look(pages, link(job_id))

    refresh = r"<noscript><meta http-equiv=\"refresh\" content=\"10\"></noscript>"
    assert re.search(refresh, page.source)
    assert page.source.count("http-equiv") == 1
    assert "http-equiv" not in stopped.source
    assert "http-equiv" not in final.source
    assert final.count("script") == 0


async def test_its_stream_says_that_something_changed_and_nothing_else(
    producer: Producer, pages: Pages
) -> None:
    _, job_id = await submitted(producer)
    page = await look(pages, link(job_id))
    address = page.attributes("main")["data-events"]

    async with listening(pages.client, f"/jobs/{address}") as stream:
        await happens(producer, job_id, "state", status="running", attempt=1)
        await happens(producer, job_id, "progress", done=1, total=2, message=HOSTILE)
        await until(lambda: len(stream.told) == 2)
        await happens(producer, job_id, "state", status="succeeded")
        await until(stream.ended.is_set)

    assert {(one.kind, json.dumps(one.data)) for one in stream.told} == {("changed", "{}")}
    assert stream.ids == sorted(stream.ids)
    assert "data-events" not in (await look(pages, link(job_id))).attributes("main")


async def test_its_stream_needs_the_link_too(producer: Producer, pages: Pages) -> None:
    _, job_id = await submitted(producer)
    good = link(job_id).replace("?", "/events?", 1)

    forged = await pages.client.get(good.replace("can=cancel.retry", "can=view"))
    expired = await pages.client.get(link(job_id, seconds=-1).replace("?", "/events?", 1))
    bare = await pages.client.get(f"/jobs/{job_id}/events")

    assert [one.status_code for one in (forged, expired, bare)] == [403, 403, 403]


async def test_the_api_hands_out_links_of_no_more_rights_than_the_key_has(
    producer: Producer, pages: Pages
) -> None:
    _, job_id = await submitted(producer)
    address, reader = f"/v1/jobs/{job_id}", await producer.as_key(scopes=["jobs:read"])

    full = (await producer.client.get(address)).json()["links"]["status"]
    again = (await producer.client.get(address)).json()["links"]["status"]
    less = (await producer.client.get(address, headers=reader)).json()["links"]["status"]
    kept = (await producer.submit("z")).json()["statusPageUrl"]
    writer = await producer.as_key(scopes=["jobs:write"])
    body = {"type": "test.echo", "data": {"n": 1}}
    headers = {"Idempotency-Key": "z", **writer}
    blind = (await producer.client.post("/v1/jobs", json=body, headers=headers)).json()

    assert full == again
    assert "can=cancel.retry" in full
    assert "can=view" in less
    assert blind["duplicate"] is True
    assert "statusPageUrl" not in blind
    for found in (full, less, kept):
        assert (await look(pages, found)).text("h1") == "Waiting to start"


async def test_without_a_secret_there_are_no_pages(producer: Producer) -> None:
    _, job_id = await submitted(producer)
    plain = await producer.replica()

    links = (await plain.client.get(f"/v1/jobs/{job_id}")).json()["links"]
    page = await plain.client.get(link(job_id))
    await plain.close()

    assert "status" not in links
    assert page.status_code == 404


async def test_a_batch_shows_its_parts_as_they_come(producer: Producer, pages: Pages) -> None:
    batch_id = await batched(producer, 10)
    await items_end(producer, batch_id, "succeeded", 0, 1, 2, 3, 4, 5, 6)
    await items_end(producer, batch_id, "failed", 7, 8)

    page = await look(pages, link(batch_id))
    portuguese = await look(pages, link(batch_id, lang="pt"))
    failed = await look(pages, link(batch_id, show="failed"))
    await items_end(producer, batch_id, "succeeded", 9)
    partly = await look(pages, link(batch_id))

    assert page.text("h1") == "In progress"
    assert "7 of 10 completed" in page.body
    assert "2 failed, 1 waiting" in page.body
    assert "7 de 10 concluídos" in portuguese.body
    assert "2 falharam, 1 aguardando" in portuguese.body
    assert page.all("dd") == ["0", "1", "2", "3", "4", "5", "6"]
    assert page.body.count("this is no invoice") == 2
    assert page.attributes("progress")["value"] == "9"
    assert [" ".join(one.split()[:2]) for one in failed.all("summary")][-2:] == ["Part 8", "Part 9"]
    assert failed.count("li") == 2
    assert partly.text("h1") == "Completed in part"
    assert "8 of 10 completed" in partly.body


async def test_results_too_large_to_be_shown_are_not_even_read(
    producer: Producer, pages: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = await batched(producer, 2)
    await producer.execute(
        "UPDATE filaviva.jobs SET result = jsonb_build_object('text', repeat('long ', 200000))"
        " WHERE parent_id = :id",
        id=batch,
    )
    read: list[Item] = []

    async def items(*arguments: Any, **more: Any) -> list[Item]:
        read.extend(found := await listed(*arguments, **more))
        return found

    listed = jobs.items
    monkeypatch.setattr(jobs, "items", items)
    answer = await pages.client.get(link(batch))

    assert answer.status_code == 200
    assert answer.text.count(EN.shortened) == 2
    assert max(len(item.result or "") for item in read) < 100_000


async def test_a_number_of_thousands_of_digits_is_shown_as_it_is(
    producer: Producer, pages: Pages
) -> None:
    job = UUID((await producer.submit("a")).json()["jobId"])
    await set_job(producer, job, "running", "succeeded")
    await producer.execute("UPDATE filaviva.jobs SET result = to_jsonb(trunc(10.0 ^ 5000))")

    answer = await pages.client.get(link(job))

    assert answer.status_code == 200
    assert "10000000" in answer.text


async def test_a_large_batch_has_pages(producer: Producer, pages: Pages) -> None:
    batch_id = await batched(producer, 120)

    address, seen = link(batch_id), []
    while address:
        page = await look(pages, address)
        seen += [" ".join(one.split()[:2]) for one in page.all("summary") if "Part" in one]
        more = [one for one in page.addresses if re.search(r"signature=[^&]+&after=\d+$", one)]
        following = [one for one in more if "/" not in one]
        address = f"/jobs/{following[-1]}" if "More parts" in page.body else ""

    assert seen == [f"Part {n}" for n in range(1, 121)]


async def press(pages: Pages, page: Document, action: str, **changes: str) -> tuple[int, str]:
    """Send the form of this action as a browser does; give the status and where it leads."""
    form = next(one for one in page.addresses if f"/{action}?" in one)
    places = [n for n, (_, one) in enumerate(page.elements) if one.get("action") == form]
    token = next(
        one["value"] for _, one in page.elements[places[0] :] if one.get("name") == "token"
    )
    headers = {"Sec-Fetch-Site": changes.pop("site", "same-origin")}
    answer = await pages.client.post(
        f"/jobs/{form}", data={"token": token, **changes}, headers=headers
    )
    return answer.status_code, answer.headers.get("location", "").removeprefix("..")


async def test_its_reader_may_cancel(producer: Producer, pages: Pages) -> None:
    _, job_id = await submitted(producer)
    page = await look(pages, link(job_id, lang="pt"))

    status, address = await press(pages, page, "cancel")
    after = await look(pages, f"/jobs{address}")
    again = await look(pages, f"/jobs{(await press(pages, page, 'cancel'))[1]}")

    assert status == 303
    assert after.text("h1") == "Cancelado"
    assert "Foi cancelado." in after.body
    assert "já não era possível" in again.body
    assert not any("/cancel?" in one for one in after.addresses)
    audit = await producer.execute("SELECT author, action FROM filaviva.audit_log")
    assert [tuple(row) for row in audit if row.action == "job.canceled"] == [
        ("status page", "job.canceled")
    ]


async def test_a_running_job_is_being_canceled_until_it_has_stopped(
    producer: Producer, pages: Pages
) -> None:
    _, job_id = await submitted(producer)
    await set_job(producer, job_id, "running")
    page = await look(pages, link(job_id))

    _, address = await press(pages, page, "cancel")
    after = await look(pages, f"/jobs{address}")

    assert after.text("h1") == "Being canceled"
    assert "you see here when it has stopped" in after.body


async def test_its_reader_may_repeat_what_failed_and_only_that(
    producer: Producer, pages: Pages
) -> None:
    batch_id = await batched(producer, 4)
    await items_end(producer, batch_id, "succeeded", 0, 1)
    await items_end(producer, batch_id, "failed", 2, 3)
    before = await look(pages, link(batch_id))

    one = await look(pages, f"/jobs{(await press(pages, before, 'retry', item='2'))[1]}")
    rest = await look(pages, f"/jobs{(await press(pages, one, 'retry'))[1]}")
    states = await producer.execute(
        "SELECT state FROM filaviva.jobs WHERE parent_id = :b ORDER BY item_index", b=batch_id
    )
    again = await look(pages, f"/jobs{(await press(pages, before, 'retry'))[1]}")

    assert before.text("h1") == "Completed in part"
    assert "What failed is being done again." in one.body
    assert "2 of 4 completed · 1 failed, 1 waiting".replace(" · ", " ") in one.body
    assert "What failed is being done again." in rest.body
    assert rest.text("h1") == "In progress"
    assert [row.state for row in states] == ["succeeded", "succeeded", "queued", "queued"]
    assert not any("/retry?" in address for address in rest.addresses)
    assert "not possible any more" in again.body


async def test_a_single_job_is_repeated_too(producer: Producer, pages: Pages) -> None:
    _, job_id = await submitted(producer)
    await set_job(producer, job_id, "running", "failed", error={"class": "timeout"})

    page = await look(pages, link(job_id))
    after = await look(pages, f"/jobs{(await press(pages, page, 'retry'))[1]}")

    assert after.text("h1") == "Waiting to start"
    assert "What failed is being done again." in after.body


async def test_a_form_that_is_not_from_the_page_changes_nothing(
    producer: Producer, pages: Pages
) -> None:
    _, job_id = await submitted(producer)
    page = await look(pages, link(job_id))
    view_only = LINKS.make(job_id, (), expires=int(time.time()) + 99)

    answers = [
        await press(pages, page, "cancel", token="x" * 43),
        await press(pages, page, "cancel", token="é" * 43),
        await press(pages, page, "cancel", token="x" * 9000),
        await press(pages, page, "cancel", site="cross-site"),
    ]
    refused = await pages.client.post(view_only.replace("?", "/cancel?"), data={"token": "x"})
    unknown = await pages.client.post(link(job_id).replace("?", "/destroy?"), data={"token": "x"})
    forged = await pages.client.post(f"/jobs/{job_id}/cancel", data={"token": "x"})
    got = await pages.client.get(link(job_id).replace("?", "/cancel?"))

    assert {status for status, _ in answers} == {303}
    assert all("note=form" in address for _, address in answers)
    assert [one.status_code for one in (refused, unknown, forged, got)] == [410, 410, 403, 405]
    assert not any("/cancel?" in one for one in (await look(pages, view_only)).addresses)
    assert (await look(pages, link(job_id))).text("h1") == "Waiting to start"


async def test_without_a_database_the_page_says_so_and_tries_again(
    producer: Producer, pages: Pages
) -> None:
    _, job_id = await submitted(producer)
    await producer.lose_database()

    page = await look(pages, link(job_id), 503)
    await producer.find_database()

    assert page.text("h1") == "We cannot look right now"
    assert 'http-equiv="refresh"' in page.source


def test_a_token_belongs_to_one_form_of_one_link() -> None:
    one, two = Link(UUID(int=1), "cancel", 9), Link(UUID(int=2), "cancel", 9)
    token = LINKS.token(one, "cancel")

    assert LINKS.posted(one, "cancel", token)
    assert not LINKS.posted(one, "retry", token)
    assert not LINKS.posted(two, "cancel", token)
    assert not LINKS.signed(one, token)


def test_a_link_outlives_a_new_secret_while_the_old_one_is_named() -> None:
    link = Link(UUID(int=1), "cancel", 9)
    _, signature = read_link(link.job_id, dict(parse_qsl(LINKS.query(link))))
    token = LINKS.token(link, "cancel")
    renewed = Links("a new secret of more than thirty-two characters")
    both = Links("a new secret of more than thirty-two characters", previous=SECRET)

    assert not renewed.signed(link, signature)
    assert both.signed(link, signature)
    assert both.posted(link, "cancel", token)
    assert both.query(link) == renewed.query(link)
