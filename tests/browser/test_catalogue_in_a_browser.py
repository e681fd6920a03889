"""The page of contracts in a real Chromium: for everybody, and on small screens."""

import time

import pytest

from filaviva.operations.catalogue_links import CatalogueLinks
from fixtures.browser import Browser
from fixtures.producer import SECRET
from fixtures.status_page import Pages

pytestmark = pytest.mark.browser


def link() -> str:
    return CatalogueLinks(SECRET).make(None, expires=int(time.time() + 3600))


async def test_everybody_can_use_it(pages: Pages, browser: Browser) -> None:
    wrong: dict[str, list[str]] = {}

    async with browser.tab() as tab:
        for name, address in (("open", link()), ("closed", "/contracts")):
            for dark in (False, True):
                await tab.dark(dark=dark)
                await tab.open(f"{pages.client.base_url}{address}")
                await tab.ask(
                    "for (const one of document.querySelectorAll('details')) one.open = 1"
                )
                if violations := await tab.violations():
                    wrong[f"{name}, {'dark' if dark else 'light'}"] = violations

    assert wrong == {}


async def test_it_is_readable_on_a_small_screen(pages: Pages, browser: Browser) -> None:
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"

    async with browser.tab() as tab:
        await tab.call(
            "Emulation.setDeviceMetricsOverride",
            width=320, height=640, deviceScaleFactor=1, mobile=True,
        )  # fmt: skip
        await tab.open(f"{pages.client.base_url}{link()}")

        assert await tab.ask(wide) == 0
