"""Write a file whole or not at all: who reads it meanwhile, or after a crash, finds the old one."""

import os
import shutil
import tempfile
from pathlib import Path

from filaviva.errors import ConfigurationError


def write_text(path: Path, text: str) -> None:
    """Write it, with its folder; ConfigurationError says why that cannot be."""
    try:
        _replace(path.resolve(), text)
    except OSError as refused:
        raise ConfigurationError(
            f"found {path}, which cannot be written ({refused.strerror or refused}); "
            "expected a place where files may be made and changed"
        ) from None


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        if path.exists():
            shutil.copymode(path, name)
        else:
            Path(name).chmod(0o666 & ~_mask())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
