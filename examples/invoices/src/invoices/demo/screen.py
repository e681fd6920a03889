"""What the person in front of the terminal sees."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from invoices.demo.facts import Fact


class Count:
    """How many documents are done: a bar on a terminal, a line in a log."""

    def __init__(self, console: Console, progress: Progress, total: int) -> None:
        self._console = console
        self._progress = progress
        self._task = progress.add_task("completed", total=total)
        self._last = ""

    def show(self, progress: Mapping[str, Any]) -> None:
        """Show a batch's progress, in its own words, if these have changed."""
        if progress["message"] == self._last:
            return
        self._last = progress["message"]
        self._progress.update(self._task, completed=progress["succeeded"])
        if not self._console.is_terminal:
            self._console.print(f"  {self._last}", highlight=False)


class Screen:
    """Short lines for a person; nothing is narrated that has not happened."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def chapter(self, title: str) -> None:
        """Begin a part of the journey."""
        self._console.print(f"\n[bold]{title}[/bold]")

    def say(self, text: str) -> None:
        """State one fact."""
        self._console.print(f"  {text}", markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show that something takes its time."""
        if not self._console.is_terminal:
            self.say(f"{text} ...")
            yield
            return
        with self._console.status(text):
            yield

    @contextmanager
    def counting(self, total: int) -> Iterator[Count]:
        """Show how many are done while the block runs."""
        bar = Progress(
            TextColumn("  {task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        with bar:
            yield Count(self._console, bar, total)

    def facts(self, facts: Sequence[Fact]) -> None:
        """Show what was checked, and how it came out."""
        table = Table(title="Checked facts", title_justify="left", show_lines=False)
        table.add_column("")
        table.add_column("claim", overflow="fold")
        table.add_column("found", overflow="fold")
        for fact in facts:
            mark = "[green]ok[/green]" if fact.holds else "[red]NO[/red]"
            table.add_row(mark, fact.claim, fact.found)
        self._console.print()
        self._console.print(table)
