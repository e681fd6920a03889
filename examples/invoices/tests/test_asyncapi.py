"""The committed document says what the app does."""

from pathlib import Path

from filaviva.asyncapi import document, of_app
from filaviva.cli.asyncapi import written

from invoices.app import app


def test_the_committed_document_is_that_of_the_app() -> None:
    committed = Path(__file__).parents[1] / "asyncapi.yaml"
    again = (
        "filaviva contracts asyncapi --app invoices.app:app --to examples/invoices/asyncapi.yaml"
    )

    found = document(of_app(app), title=app.name, version="1")

    assert committed.read_text(encoding="utf-8") == written(found, yaml=True), f"run: {again}"
