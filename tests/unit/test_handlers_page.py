"""The page that tells what a handler has names all of it, and its example runs."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import filaviva
from filaviva import Context, Policy
from filaviva.context import Running
from filaviva.outcome import ErrorClass

PAGE = (Path(__file__).parents[2] / "docs/reference/handlers.md").read_text()


def test_nothing_that_a_handler_has_is_missing() -> None:
    context = {*vars(Context), *vars(Running), *Running.__annotations__}
    wanted = {f"ctx.{name}" for name in context if not name.startswith("_")}
    wanted |= {f"`{one.name}`" for one in fields(Policy)}
    wanted |= {f"`{word}`" for word in get_args(ErrorClass)}

    assert {each for each in wanted if each not in PAGE} == set()


def test_what_the_page_names_exists() -> None:
    named = set(re.findall(r"`ctx\.(\w+)", PAGE)) | set(re.findall(r"ctx\.(\w+)\(", PAGE))

    assert named <= {*vars(Context), *vars(Running), *Running.__annotations__}
    assert {"Retryable", "Terminal", "Refused", "InvalidOutput"} <= set(filaviva.__all__)


async def test_the_example_of_a_test_passes() -> None:
    block = re.search(r"<!-- a test runs this block -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert block
    names: dict[str, Any] = {"__name__": "page"}
    exec(block[1], names)  # noqa: S102 - ours

    tests = [each for name, each in names.items() if name.startswith("test_")]
    for test in tests:
        await test()
    assert len(tests) == 2
