"""The status page in a real Chromium: for everybody, live, without scripts, and under attack."""

from uuid import UUID

import pytest

from fixtures.browser import Browser
from fixtures.producer import LINKS, Producer
from fixtures.status_page import HOSTILE, Pages, link, set_job
from fixtures.timelines import batched, happens, items_end, submitted
from fixtures.waiting import until

pytestmark = pytest.mark.browser


async def jobs_in_every_state(producer: Producer) -> dict[str, UUID]:
    """Make a job for each way the page can look."""
    names = ("queued", "running", "succeeded", "failed", "canceled")
    found = {name: (await submitted(producer, name))[1] for name in names}
    progress = {"done": 7, "total": 10, "message": "reading page 8"}
    await set_job(producer, found["running"], "running", progress=progress)
    result = {"invoiceNumber": "42", "total": 12.5, "paid": True}
    await set_job(producer, found["succeeded"], "running", "succeeded", result=result)
    error = {"class": "refused", "code": "Refused", "message": "the document is no invoice"}
    await set_job(producer, found["failed"], "running", "failed", error=error)
    await set_job(producer, found["failed"], result=[{"deep": ["result"]}])
    await set_job(producer, found["canceled"], "canceled")
    found["batch"] = await batched(producer, 6)
    await items_end(producer, found["batch"], "succeeded", 0, 1)
    await items_end(producer, found["batch"], "failed", 2, 3)
    await items_end(producer, found["batch"], "running", 4)
    return found


async def test_everybody_can_use_it(producer: Producer, pages: Pages, browser: Browser) -> None:
    found = await jobs_in_every_state(producer)
    addresses = {name: link(job_id) for name, job_id in found.items()}
    addresses["batch, what failed"] = link(found["batch"], show="failed")
    addresses["canceling, just now"] = link(found["running"], note="cancel_requested")
    addresses["expired"] = link(found["queued"], seconds=-1)
    addresses["gone"] = link(UUID(int=7))
    wrong: dict[str, list[str]] = {}

    async with browser.tab() as tab:
        for name, address in addresses.items():
            for dark in (False, True):
                language = "pt" if dark else "en"
                await tab.dark(dark=dark)
                await tab.open(f"{pages.client.base_url}{address}&lang={language}")
                await tab.ask(
                    "for (const one of document.querySelectorAll('details')) one.open = 1"
                )
                if violations := await tab.violations():
                    wrong[f"{name}, {'dark' if dark else 'light'}"] = violations

    assert wrong == {}


async def test_it_is_readable_on_a_small_screen(
    producer: Producer, pages: Pages, browser: Browser
) -> None:
    found = await jobs_in_every_state(producer)
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

    async with browser.tab() as tab:
        await tab.call(
            "Emulation.setDeviceMetricsOverride",
            width=320, height=640, deviceScaleFactor=1, mobile=True,
        )  # fmt: skip
        over = {}
        for name, job_id in found.items():
            await tab.open(f"{pages.client.base_url}{link(job_id)}")
            over[name] = await tab.ask(wide)

    assert {name: pixels for name, pixels in over.items() if pixels > 0} == {}


async def test_it_follows_the_job_to_its_end_without_being_loaded_again(
    producer: Producer, pages: Pages, browser: Browser
) -> None:
    _, job_id = await submitted(producer)

    async with browser.tab() as tab:
        await tab.open(f"{pages.client.base_url}{link(job_id)}")
        await until(lambda: tab.text("#live"))
        assert await tab.text("h1") == "Waiting to start"
        await tab.ask("window.same = true; document.querySelector('summary').focus()")
        await tab.ask("document.querySelector('details').open = true")

        await happens(producer, job_id, "state", status="running", attempt=1)
        await set_job(producer, job_id, progress={"done": 7, "total": 10})
        await happens(producer, job_id, "progress", done=7, total=10)
        await until(lambda: _says(tab, "#status", "7 of 10 completed"))
        kept = await tab.ask(
            "[window.same, document.activeElement.tagName, document.querySelector('details').open]"
        )
        told = await tab.text("#told")

        await happens(producer, job_id, "state", status="succeeded")
        await until(lambda: _says(tab, "h1", "Completed"))
        title = await tab.ask("document.title")
        last = await tab.ask("[window.same, document.getElementById('live').hidden]")

    assert kept == [True, "SUMMARY", True]
    assert told == "In progress. 7 of 10 completed"
    assert title == "Completed · Test echo"
    assert last == [True, True]
    assert tab.said == []


async def _says(tab: object, selector: str, words: str) -> bool:
    return words in await tab.text(selector)  # type: ignore[attr-defined]


async def test_it_survives_a_restart_of_the_producer(producer: Producer, browser: Browser) -> None:
    _, job_id = await submitted(producer)
    first = await producer.replica(links=LINKS)

    async with browser.tab() as tab:
        await tab.open(f"{first.client.base_url}{link(job_id)}")
        await until(lambda: tab.text("#live"))
        await first.close()
        await until(lambda: _says(tab, "#live", "connection is lost"))
        second = await producer.replica(links=LINKS, port=first.port)
        await set_job(producer, job_id, "running", progress={"done": 1, "total": 2})
        await happens(producer, job_id, "progress", done=1, total=2)
        await until(lambda: _says(tab, "#status", "1 of 2 completed"))
        await until(lambda: _says(tab, "#live", "updates itself"))
    await second.close()


async def test_it_works_without_scripts(producer: Producer, pages: Pages, browser: Browser) -> None:
    _, job_id = await submitted(producer)

    async with browser.tab(scripts=False) as tab:
        await tab.open(f"{pages.client.base_url}{link(job_id, lang='pt')}")
        assert "se recarrega a cada 10 segundos" in await tab.text("footer")
        await tab.click("#cancel summary")
        await tab.click("#cancel button")
        await until(lambda: _says(tab, "h1", "Cancelado"))
        note = await tab.text(".note")

    assert note == "Foi cancelado."
    assert tab.said == []


async def test_nothing_hostile_runs(producer: Producer, pages: Pages, browser: Browser) -> None:
    _, job_id = await submitted(producer)
    await set_job(
        producer,
        job_id,
        "running",
        labels={"title": HOSTILE},
        progress={"done": 1, "total": 2, "message": HOSTILE},
    )

    async with browser.tab() as tab:
        await tab.open(f"{pages.client.base_url}{link(job_id)}")
        await until(lambda: tab.text("#live"))
        await set_job(
            producer,
            job_id,
            "failed",
            result={HOSTILE: HOSTILE},
            error={"class": "terminal", "code": HOSTILE, "message": HOSTILE},
        )
        await happens(producer, job_id, "state", status="failed")
        await until(lambda: _says(tab, "h1", "Not completed"))
        images = await tab.ask("document.images.length")
        shown = await tab.text("#status")

    assert tab.said == []
    assert images == 0
    assert shown.count("<script>alert(1)</script>") == 5
