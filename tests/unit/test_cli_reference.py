"""What the pages say is what the code does."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from filaviva.cli.reference import PAGES
from filaviva.cli.root import root
from filaviva.outcome import ErrorClass
from filaviva.telemetry.known import REASONS
from filaviva_contracts.wire import WIRE
from filaviva_dlq_handler.api import Routes
from filaviva_producer.canceling import Canceling
from filaviva_producer.contents import Contents
from filaviva_producer.contracts import Contracts
from filaviva_producer.describing import Describing
from filaviva_producer.erasing import Erasing
from filaviva_producer.publishing import Publishing
from filaviva_producer.reading import Reading
from filaviva_producer.retrying import Retrying
from filaviva_producer.scheduling import Scheduling
from filaviva_producer.streaming import Streaming

ROOT = Path(__file__).parents[2]
WRITTEN = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
CODE = [
    path
    for folder in ("src", "services")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.name != "failpoints.py"
]


def _page(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def _found(pattern: str, files: list[Path]) -> set[str]:
    return {match for path in files for match in re.findall(pattern, path.read_text())}


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_as_the_code_would_write_it(name: str) -> None:
    again = f"{name} is old: run .venv/bin/python -m filaviva.cli.reference"

    assert (ROOT / name).read_text() == PAGES[name](), again


def test_asking_for_help_writes_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "filaviva.cli.reference", "--help"]

    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert "FOLDER" in said.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_example_of_settings_names_every_variable_with_its_meaning() -> None:
    lines = PAGES[".env.example"]().splitlines()

    named = [n for n, line in enumerate(lines) if re.match(r"#?FILAVIVA_[A-Z_]+=", line)]

    assert len(named) > 20
    assert all(re.match("# [^ ]", lines[n - 1]) for n in named)
    assert "None" not in PAGES[".env.example"]()


def test_every_failpoint_is_on_its_page_and_no_other() -> None:
    passed = _found(r"passing\(\s*\"([a-z_.]+)\"", CODE)
    listed = set(re.findall(r"`([a-z]+\.[a-z_]+)`", _page("reference/failpoints.md")))

    assert listed == passed


def test_every_route_is_on_the_page_of_the_http_api() -> None:
    means: Any = None
    faces = [
        Reading(means, means),
        Canceling(means, means, means),
        Erasing(means),
        Describing(means),
        Contracts(means),
        Contents(means, means),
        Retrying(means, means, means, means),
        Scheduling(means, means, means),
        Publishing(means, means, means, means, means),
        Streaming(means, means, means),
        Routes(means, means),
    ]
    routes = {
        f"{method} {route.path}"
        for face in faces
        for route in face.router().routes
        for method in route.methods
    } | {"POST /v1/jobs"}

    page = _page("reference/http-api.md")

    assert {route for route in routes if f"`{route}`" not in page} == set()
    assert set(re.findall(r"`((?:GET|POST|PATCH|DELETE) /v1/[^`]*)`", page)) == routes


def test_every_code_of_a_refusal_is_on_the_page_of_the_http_api() -> None:
    faces = [path for path in CODE if "cli" not in path.parts]
    codes = _found(r"Rejected\(\s*\"([a-z_]+)\"", faces)

    assert codes
    assert {code for code in codes if f"`{code}`" not in _page("reference/http-api.md")} == set()


def test_our_messages_are_on_their_page_with_every_field() -> None:
    page = _page("reference/messages.md")

    for contract in WIRE:
        (row,) = re.findall(rf"\| `{re.escape(contract.contract_type)}\.v\d+` .*", page)
        for field in contract.model_fields.values():
            assert f"`{field.alias}`" in row


def test_every_class_of_error_is_on_the_page_of_states() -> None:
    page = _page("architecture/states.md")

    assert {name for name in ErrorClass.__args__ if f"`{name}`" not in page} == set()


def test_every_reason_of_a_dead_letter_is_told_with_what_helps() -> None:
    page = _page("howto/replay-a-dead-letter.md")

    assert {reason for reason in REASONS if f"\n| `{reason}` |" not in page} == set()


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text())

    gone = [link for link in links if "://" not in link and not (path.parent / link).exists()]

    assert gone == []


def test_every_command_that_a_page_or_the_code_names_exists() -> None:
    group = root()

    unknown = {
        f"{path.name}: filaviva {name} {inner}"
        for path in [*WRITTEN, *CODE]
        for name, inner in _commands(path.read_text())
        if not _exists(group, name, inner)
    }

    assert unknown == set()


def _commands(text: str) -> Iterator[tuple[str, str]]:
    # In code only: prose may say "filaviva" as well.
    for code in re.findall(r"```sh\n(.*?)```|`([^`\n]*)`", text, re.DOTALL):
        named = r"(?<!-p )(?<!--owner )\bfilaviva ([a-z]+(?:-[a-z]+)*)(?: ([a-z][a-z|-]*))?"
        yield from re.findall(named, "".join(code))


def _exists(group: Any, name: str, inner: str) -> bool:
    if name not in group.places:
        return False
    known = getattr(group.load(name), "commands", {})
    return not known or name == "dev" or all(each in known for each in inner.split("|") if each)


def test_every_command_that_is_told_with_options_is_taken_as_it_stands() -> None:
    group = root()

    refused = {
        f"{path.name}: filaviva {line}: {wrong}"
        for path in [*WRITTEN, *CODE]
        if path.name != "cli.md"  # made from the commands themselves, by their names
        for line in _lines(path.read_text())
        if (wrong := _refused(group, line))
    }

    assert refused == set()


def _lines(text: str) -> Iterator[str]:
    for block, code in re.findall(r"```sh\n(.*?)```|`([^`\n]*)`", text, re.DOTALL):
        joined = (block or code).replace("\\\n", " ")
        # Names of other programs, and what goes on in the shell, end a command.
        yield from re.findall(r"(?:^|[\s/(])filaviva ([a-z][^\n|;&>#]*)", joined)


_FILLED = "--x"  # an option whose name the code fills in


def _refused(group: Any, line: str) -> str | None:
    """Say what is wrong with the words; one that is only named by its name stands for itself."""
    try:
        name, *words = shlex.split(re.sub(r"(?<!')\{[^}]*\}", "x", line))
    except ValueError:  # cut in the middle of its quotes
        return None
    if name not in group.places or name == "run":
        return None
    command = group.load(name)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if not words or hasattr(command, "commands"):
        return None
    options = {each: one for one in command.params for each in (*one.opts, *one.secondary_opts)}
    used, places = _taken(words, options)
    unknown = [each for each in used if each not in {*options, "--help", _FILLED}]
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    if unknown:
        return f"no such option: {unknown}"
    if places > len(arguments) and all(one.nargs > 0 for one in arguments):
        return "too many words"
    missing = [
        one.opts[0]
        for one in command.params
        if one.required
        and "…" not in words
        and one not in arguments
        and not set(used) & set(one.opts)
    ]
    return f"missing: {missing}" if missing else None


def _taken(words: list[str], options: dict[str, Any]) -> tuple[list[str], int]:
    """Give the options among the words, and how many words belong to none."""
    used, places, rest = [], 0, iter(words)
    for word in rest:
        if word.startswith("-"):
            used.append(word.partition("=")[0])
            if "=" not in word and not getattr(options.get(word), "is_flag", word != _FILLED):
                next(rest, None)
        else:
            places += 1
    return used, places
