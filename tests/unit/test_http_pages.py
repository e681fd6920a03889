"""Cursors are opaque, belong to their filters, and are never an error of ours."""

import re

import pytest

from filaviva.errors import Rejected
from filaviva.http import pages

NUMBER = re.compile("[0-9]{1,18}")


def test_a_cursor_leads_back_to_its_row() -> None:
    made = pages.cursor("17", {"status": "failed"})

    assert pages.after(made, {"status": "failed"}, form=NUMBER) == "17"
    assert pages.after(None, {}, form=NUMBER) is None
    assert re.fullmatch("[A-Za-z0-9_-]+", made)


@pytest.mark.parametrize(
    "found", ["", "x", "=", "AAAA", "ä", "🎉", "AAAAAAAAAAAAAAAA", pages.cursor("x", {})]
)
def test_a_strange_cursor_is_refused(found: str) -> None:
    with pytest.raises(Rejected) as refused:
        pages.after(found, {}, form=NUMBER)

    assert (refused.value.status, refused.value.code) == (422, "invalid_cursor")


def test_a_cursor_of_another_list_is_refused() -> None:
    with pytest.raises(Rejected):
        pages.after(pages.cursor("17", {"a": 1}), {"a": 2}, form=NUMBER)
