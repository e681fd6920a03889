"""Begin the next version of a contract: its model, an upcaster, a golden message and a test.

What is written runs at once, for the next version begins as a copy: then its model is changed, and
the upcaster with it, until golden message and test say what is meant.
"""

import ast
import inspect
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from filaviva.app import App
from filaviva.errors import ConfigurationError, Incompatible, NotFound
from filaviva.evolution.catalog import Catalog, Defined
from filaviva.evolution.folder import Folder, golden_path
from filaviva.evolution.goldens import golden_value
from filaviva.evolution.release import event
from filaviva.evolution.terms import Terms
from filaviva.evolution.writing import write_text
from filaviva.handler import Handler
from filaviva_contracts import Contract
from filaviva_contracts.names import event_of

_UPCASTER = '''

@{app}.upcaster({old}, to={to})
def {name}(data: dict[str, Any]) -> dict[str, Any]:
    """Give v{to} what v{version} had not; it may change the dict that it is given."""
    return data
'''

_TEST = '''"""What was sent as {type} v{version} is read as v{to}."""

import json
from pathlib import Path

import pytest

from {module} import {imported}

FOLDER = Path(__file__).parent / "{folder}"
GOLDEN = [path for path in sorted(FOLDER.glob("{version}.*")) if ".result." not in path.name]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name)
def test_{name}(golden: Path) -> None:
    handler = app.find("{job_type}", {version})
    assert handler is not None
    sent = json.loads(golden.read_text(encoding="utf-8"))["data"]

    job = handler.parse(json.dumps(sent))

    assert job.contract_version == {to}  # and what else v{to} makes of it
'''


@dataclass(slots=True)
class Begun:
    """What is to be written, and what is left to a person."""

    files: dict[Path, str] = field(default_factory=dict)
    goldens: dict[str, object] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    def text(self, path: Path) -> str:
        """Give a file as it will be."""
        try:
            return self.files.get(path) or path.read_text(encoding="utf-8")
        except UnicodeDecodeError as wrong:
            raise ConfigurationError(
                f"found {path}, which is not UTF-8 (byte {wrong.start}), expected it to be"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What things are called."""

    type: str
    version: int
    old: str
    new: str

    @property
    def to(self) -> int:
        return self.version + 1

    @property
    def step(self) -> str:
        words = re.sub(r"\W", "_", self.type)
        return f"{words}_v{self.version}_to_v{self.to}"


def begin(  # noqa: PLR0913, PLR0917 - the code, its files and what they are called
    contract_type: str,
    catalog: Catalog,
    folder: Folder,
    terms: Terms,
    app: App | None,
    app_path: str,
) -> Begun:
    """Say what the next version begins with; nothing is written."""
    newest = _newest(contract_type, catalog, folder)
    names = _names(newest.contract)
    begun = Begun()
    _model(newest.contract, names, begun)
    _golden(newest, names, folder, begun)
    begun.steps.append(f"change {names.new} as you mean to")
    handlers = [] if app is None else app.all_handlers()
    reading = [each for each in handlers if each.contract is newest.contract]
    for handler in reading:  # an event may have several, and one upcaster serves them all
        _switch(handler, names, begun, upcast=handler is reading[0])
    if reading:
        _test(reading[0], names, folder, terms, app_path, begun)
    begun.steps.append(
        f"filaviva contracts export, and write {golden_path((names.type, names.to), 'data')} "
        "as it will be sent"
    )
    if reading:
        begun.steps.append("python -m pytest, in the folder of the project")
    return begun


def write(begun: Begun, folder: Folder) -> list[str]:
    """Write it; give the names of the files."""
    for name, content in begun.goldens.items():
        folder.write(name, content)
    # What is there already comes last: should one not be writable, the code is as it was.
    for path in sorted(begun.files, key=Path.exists):
        write_text(path, _ending_as(path, begun.files[path]))
    return [*map(str, begun.files), *(str(folder.root / name) for name in begun.goldens)]


def _ending_as(path: Path, text: str) -> str:
    """End its lines as those of the file end that it takes the place of."""
    crlf = path.exists() and b"\r\n" in path.read_bytes()
    return text.replace("\n", "\r\n") if crlf else text


def _newest(contract_type: str, catalog: Catalog, folder: Folder) -> Defined:
    newest = catalog.newest(contract_type)
    if newest is None:
        known = ", ".join(sorted({kind for kind, _ in catalog.defined})) or "none"
        raise NotFound(f"found no contract {contract_type!r} in the code; there is: {known}")
    if not folder.is_released(newest.key):
        raise Incompatible(
            f"{contract_type} v{newest.key[1]} is a draft, which may change in place; where it is "
            "deployed already: filaviva contracts export, then filaviva contracts release"
        )
    return newest


def _names(contract: type[Contract]) -> Names:
    version = contract.contract_version
    stem = re.sub(r"V\d+$", "", contract.__name__)
    return Names(
        type=contract.contract_type,
        version=version,
        old=contract.__name__,
        new=f"{stem}V{version + 1}",
    )


def _model(contract: type[Contract], names: Names, begun: Begun) -> None:
    """Copy the class below itself, under its new name and version."""
    path = Path(inspect.getfile(contract))
    lines = begun.text(path).splitlines()
    found = [
        node
        for node in ast.walk(ast.parse("\n".join(lines)))
        if isinstance(node, ast.ClassDef) and node.name == names.old
    ]
    if not found:
        raise NotFound(f"found no class {names.old} in {path}, expected the one of {names.type}")
    if names.new in _taken(begun.text(path)):
        raise Incompatible(f"found {names.new} in {path} already, expected the name to be free")
    node = found[0]
    body = _copied(lines, node, names)
    renamed = body.replace(f"class {names.old}", f"class {names.new}", 1)
    copy = re.sub(rf"\bversion={names.version}\b", f"version={names.to}", renamed, count=1)
    if copy == renamed:
        raise NotFound(
            f"found no version={names.version} in the class statement of {names.old} ({path}), "
            "expected it there as a number"
        )
    begun.files[path] = _inserted(lines, node.end_lineno or len(lines), f"\n\n{copy}")


def _taken(text: str) -> set[str]:
    return {
        name
        for node in ast.walk(ast.parse(text))
        for name in (getattr(node, "name", None), getattr(node, "id", None))
        if isinstance(name, str)
    }


def _copied(lines: list[str], node: ast.ClassDef, names: Names) -> str:
    copied = lines[: node.end_lineno]
    for each in node.body:
        if isinstance(each, ast.AnnAssign):  # a recursive model means itself
            for number in range(each.lineno - 1, each.end_lineno or each.lineno):
                copied[number] = re.sub(rf"\b{names.old}\b", names.new, copied[number])
    return "\n".join(copied[node.lineno - 1 :])


def _golden(newest: Defined, names: Names, folder: Folder, begun: Begun) -> None:
    for place in folder.goldens():
        if place.key == newest.key:
            value = golden_value(folder, place)
            path = golden_path((names.type, names.to), place.part, place.name)
            key = (names.type, names.to)
            begun.goldens[path] = event(key, value) if place.part == "data" else value


def _switch(handler: Handler, names: Names, begun: Begun, *, upcast: bool) -> None:
    """Let the handler read the new version, and upcast the old one for it."""
    found = _registered(handler, names, begun)
    if found is None:
        begun.steps.append(
            f"register an upcaster: @app.upcaster({names.old}, to={names.to}), and let the handler "
            f"{handler.name} read {names.new}"
        )
        return
    lines = begun.text(found.path).splitlines()
    for number in range(*found.head):
        # The body may begin where the head ends: in one line.
        last = number == found.head[1] - 1
        head = lines[number].encode()[: found.column if last else None].decode()
        rest = lines[number].removeprefix(head)
        lines[number] = re.sub(rf"\b{names.old}\b", names.new, head) + rest
    text = "\n".join([*lines, ""])
    if upcast:
        step = _UPCASTER.format(
            app=found.app, old=found.old, to=names.to, version=names.version, name=names.step
        )
        text = _with_any(_inserted(lines, found.end, step.rstrip("\n")))
        begun.steps.append(f"write the upcaster {names.step} in {found.path}")
    begun.files[found.path] = _importing(text, names)


@dataclass(frozen=True, slots=True)
class _Registered:
    """Where a handler is written, and what its app and its contract are called there."""

    path: Path
    head: tuple[int, int]
    column: int  # where in the last line of the head the body begins
    end: int
    app: str
    old: str


def _registered(handler: Handler, names: Names, begun: Begun) -> _Registered | None:
    code = getattr(inspect.unwrap(handler.function), "__code__", None)
    if code is None:
        return None
    path = Path(code.co_filename)
    for node in ast.walk(ast.parse(begun.text(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == code.co_name:
            for app, old in map(_words, node.decorator_list):
                if old.rpartition(".")[2] == names.old:
                    first = min(each.lineno for each in (*node.decorator_list, node))
                    body = node.body[0]
                    head, end = (first - 1, body.lineno), node.end_lineno or node.lineno
                    return _Registered(path, head, body.col_offset, end, app, old)
    return None


def _words(decorator: ast.expr) -> tuple[str, str]:
    """Read app and contract out of `@app.handler(Contract, …)`; two empty words for any other."""
    if isinstance(decorator, ast.Call) and decorator.args:
        called = decorator.func
        if isinstance(called, ast.Attribute) and called.attr in {"handler", "on_event"}:
            return ast.unparse(called.value), ast.unparse(decorator.args[0])
    return "", ""


def _importing(text: str, names: Names) -> str:
    """Import the new class where the old one is imported."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ImportFrom):
            known = {each.name for each in node.names}
            if names.old in known and names.new not in known:
                for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                    both = f"{names.old}, {names.new}"
                    lines[number] = re.sub(rf"\b{names.old}\b", both, lines[number])
    return "\n".join([*lines, ""])


def _with_any(text: str) -> str:
    """Import Any at the end of the first block of imports, if nobody has."""
    body = ast.parse(text).body
    imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    named = [each.name for node in imports for each in node.names]
    if "Any" in named or not imports:
        return text
    end = imports[0].lineno - 1
    for node in imports:
        if node.lineno - 1 > end:
            break
        end = node.end_lineno or node.lineno
    return _inserted(text.splitlines(), end, "from typing import Any")


def _test(  # noqa: PLR0913, PLR0917 - the code, its files and what they are called
    handler: Handler, names: Names, folder: Folder, terms: Terms, app_path: str, begun: Begun
) -> None:
    module, _, attribute = app_path.partition(":")
    path = terms.tests / f"test_{names.step}.py"
    golden = folder.root / "golden" / event_of(names.type)
    begun.files[path] = _TEST.format(
        type=names.type,
        version=names.version,
        to=names.to,
        module=module,
        imported="app" if attribute == "app" else f"{attribute} as app",
        folder=os.path.relpath(golden, terms.tests),
        job_type=handler.job_type,
        name=names.step,
    )


def _inserted(lines: list[str], after: int, text: str) -> str:
    return "\n".join([*lines[:after], *text.splitlines(), *lines[after:], ""])
