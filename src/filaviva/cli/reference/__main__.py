"""`python -m filaviva.cli.reference [FOLDER]`: write the pages into a working copy."""

import argparse
from pathlib import Path

from filaviva.cli.reference import PAGES


def main() -> None:
    """Write every page."""
    parser = argparse.ArgumentParser(prog="python -m filaviva.cli.reference", description=__doc__)
    parser.add_argument("folder", nargs="?", default=".", type=Path, metavar="FOLDER")
    folder: Path = parser.parse_args().folder
    for name, write in PAGES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(write(), encoding="utf-8")


if __name__ == "__main__":
    main()
