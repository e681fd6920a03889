"""requirements/: pinned, hashed, and silent about where packages come from."""

import re
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "requirements").glob("*.txt"))


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
