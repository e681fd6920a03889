"""`python -m filaviva.cli.reference [FOLDER]`: write the pages into a working copy."""

import sys
from pathlib import Path

from filaviva.cli.reference import PAGES


def main() -> None:
    """Write every page."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for name, write in PAGES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(write(), encoding="utf-8")


if __name__ == "__main__":
    main()
