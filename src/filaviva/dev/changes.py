"""Tells when source files change."""

from collections.abc import Callable
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread


def watch(changed: Callable[[], None], stopping: Event) -> None:
    """Call back, from a thread of our own, after each change of Python source."""
    from watchfiles import PythonFilter  # noqa: PLC0415 - only `--reload` needs it
    from watchfiles import watch as watched  # noqa: PLC0415

    def look() -> None:
        for _ in watched(*_folders(), watch_filter=PythonFilter(), stop_event=stopping):
            changed()

    Thread(target=look, name="watch source", daemon=True).start()


def _folders() -> list[Path]:
    """The source of the runtime, of the services, and what lies in the present folder."""
    services = (entry.module.partition(".")[0] for entry in entry_points(group="filaviva.services"))
    packages = ["filaviva", "filaviva_contracts", *services]
    specs = [spec for name in packages if (spec := find_spec(name)) is not None]
    found = {Path(place) for spec in specs for place in spec.submodule_search_locations or ()}
    here = [Path(name) for name in ("src", "examples") if Path(name).is_dir()]
    return [*found, *here]
