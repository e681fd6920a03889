"""Write the JSON Schemas of our own wire contracts: `python -m filaviva_contracts DIRECTORY`."""

import json
import sys
from pathlib import Path

from filaviva_contracts.wire import WIRE


def main(directory: Path) -> None:
    """Write one file for each version of each wire contract."""
    for contract in WIRE:
        folder = directory / contract.contract_type
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(contract.json_schema(), indent=2, ensure_ascii=False)
        (folder / f"{contract.contract_version}.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "contracts/schemas"))
