"""Where an exception comes from, in a form that is the same on every machine."""

import traceback
from pathlib import PurePath
from types import FrameType

from filaviva.canonical import storable

_MOST = 8
_RUNTIME = frozenset({"asyncio", "concurrent", "threading", "contextlib", "contextvars"})


def frames(error: BaseException) -> tuple[str, ...]:
    """Give the user's own frames and the one that raised, as "file:function", innermost last."""
    walked = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    start = next((at for at, frame in enumerate(walked) if not _ours(_package(frame))), None)
    if start is None:
        return ()
    below = walked[start:]
    package = _package(below[0])
    kept = [frame for frame in below[:-1] if _package(frame) == package] + below[-1:]
    return tuple(_named(frame) for frame in kept[-_MOST:])


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _ours(package: str) -> bool:
    return package in _RUNTIME or package == "filaviva" or package.startswith("filaviva_")


def _named(frame: FrameType) -> str:
    file = "/".join(PurePath(frame.f_code.co_filename).parts[-2:])
    return storable(f"{file}:{frame.f_code.co_name}", 200)
