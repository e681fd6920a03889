"""The commands, as they explain themselves."""

from collections.abc import Iterator
from typing import Any, Final

from filaviva.cli.root import root

_HEAD: Final = """\
# Command line

<!-- written by `python -m filaviva.cli.reference` -->

`filaviva` acts on PostgreSQL (`FILAVIVA_POSTGRES__URL`); who acts is the user of the operating
system, and stands in the audit log. Commands that read have `--json`; commands that destroy or send
something have `--dry-run` and ask unless `--yes` is given.

| exit code | meaning |
|---|---|
| 0 | ok |
| 1 | failed (also: a watched job did not succeed, a check found something wrong, you said no) |
| 2 | usage or configuration: a wrong option, setting or datum, a login that a server refuses |
| 3 | there is no such thing |
| 4 | refused: its state does not allow it, or somebody else was faster |
| 5 | the database or the broker does not answer |

Where neither `FILAVIVA_POSTGRES__URL` nor `FILAVIVA_BROKER__URL` is set, commands act on the stack
that `filaviva dev` runs in this folder (`.filaviva/dev.json`).
"""


def page() -> str:
    """Write the reference page."""
    group = root()
    parts = [_HEAD]
    for name in group.places:
        parts += _sections(f"filaviva {name}", group.load(name))
    return "\n".join(parts)


def _sections(path: str, command: Any) -> Iterator[str]:
    inner = getattr(command, "commands", {})
    takes_options = not inner or command.invoke_without_command
    yield _section("##", path, command, options=takes_options)
    for name, each in inner.items():
        yield _section("###", f"{path} {name}", each, options=True)


def _section(level: str, path: str, command: Any, *, options: bool) -> str:
    arguments = [_argument(each) for each in command.params if each.param_type_name == "argument"]
    heading = " ".join([path, *arguments])
    text = f"{level} `{heading}`\n\n{_words(command)}\n"
    return text + _options(command) if options else text


def _argument(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _words(command: Any) -> str:
    text = command.help or ""
    return "\n".join(line.strip() for line in text.strip().splitlines())


def _options(command: Any) -> str:
    rows = [
        f"| {_names(each)} | {(each.help or '').replace('|', chr(92) + '|')} | {_default(each)} |"
        for each in command.params
        if each.param_type_name == "option" and not _everywhere(each)
    ]
    if not rows:
        return ""
    return "\n| option | | default |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def _everywhere(option: Any) -> bool:
    return bool({"--help", "--install-completion", "--show-completion"} & set(option.opts))


def _names(option: Any) -> str:
    return ", ".join(f"`{name}`" for name in option.opts)


def _default(option: Any) -> str:
    if option.required:
        return "**required**"
    if option.default in (None, False, "", ()):
        return ""
    if isinstance(option.default, list | tuple):
        return f"`{' '.join(map(str, option.default))}`"
    return f"`{option.default}`"
