"""requirements/: pinned, hashed, and silent about where packages come from."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "requirements").glob("*.txt"))
LOCKS = [
    ROOT / folder / "package-lock.json" for folder in ("examples/typescript", "tests/asyncapi")
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_requirement_is_pinned_with_a_hash_and_names_no_host(file: Path) -> None:
    text = file.read_text()
    requirements = re.findall(r"^[a-z0-9].*?(?=^[a-z0-9]|\Z)", text, re.MULTILINE | re.DOTALL)
    assert requirements
    assert all("==" in one and "--hash=sha256:" in one for one in requirements)
    assert "://" not in text
    assert not re.search(r"^-", text, re.MULTILINE)


def test_an_image_has_the_versions_that_were_tested() -> None:
    pins = {
        file.name: set(re.findall(r"^\S+==\S+", file.read_text(), re.MULTILINE)) for file in FILES
    }
    assert pins["runtime.txt"] <= pins["all.txt"]
    assert pins["build.txt"] <= pins["all.txt"]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.parent.name)
def test_a_package_is_pinned_with_a_hash_and_names_no_host(lock: Path) -> None:
    packages = json.loads(lock.read_text())["packages"]
    installed = [package for path, package in packages.items() if path]
    assert installed
    assert all(package["integrity"].startswith("sha512-") for package in installed)
    assert not any("resolved" in package for package in installed)
