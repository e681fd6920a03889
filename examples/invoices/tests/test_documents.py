"""The samples come from the installed package, and a missing one is named."""

import pytest

from invoices import documents
from invoices.documents import Document, DocumentMissing


def test_every_sample_is_in_the_installed_package():
    assert all(document.read() for document in documents.ALL)


def test_names_are_unique_and_found():
    names = [document.name for document in documents.ALL]

    assert len(set(names)) == len(names)
    assert [documents.named(name) for name in names] == list(documents.ALL)
    assert documents.named("no-such") is None


def test_a_missing_sample_says_which_and_what_is_expected():
    with pytest.raises(DocumentMissing, match=r"nfe/nothing\.xml; expected nfelib"):
        Document("gone", "nfe", "nothing.xml").read()
