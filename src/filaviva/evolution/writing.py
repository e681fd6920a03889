"""Write a file whole or not at all: who reads it meanwhile, or after a crash, finds the old one."""

import os
import stat
from pathlib import Path
from typing import Final

from filaviva import atomic
from filaviva.errors import ConfigurationError

_ALL_MAY: Final = 0o666


def write_text(path: Path, text: str) -> None:
    """Write it, with its folder; ConfigurationError says why that cannot be."""
    try:
        file = path.resolve()
        mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else _ALL_MAY & ~_mask()
        atomic.write_text(file, text, mode=mode)
    except OSError as refused:
        raise ConfigurationError(
            f"found {path}, which cannot be written ({refused.strerror or refused}); "
            "expected a place where files may be made and changed"
        ) from None


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
