"""What is released stays readable: our own messages, and those of the example."""

from pathlib import Path

import pytest

from filaviva.app import load_app
from filaviva.evolution.catalog import catalog
from filaviva.evolution.folder import Folder
from filaviva.evolution.gate import check
from filaviva.evolution.terms import read_terms

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("project", ["contracts", "examples/invoices"])
def test_all_that_was_sent_can_be_read(project: str) -> None:
    terms = read_terms(ROOT / project)
    found = catalog(load_app(terms.app) if terms.app else None, terms.modules)

    report = check(found, Folder.open(terms.folder), terms)

    assert report.passes, (report.findings, [each for each in report.judged if each.refused])
    assert not report.drafts, "release them: filaviva contracts release"
    assert not report.unfrozen, "release them: filaviva contracts release"
