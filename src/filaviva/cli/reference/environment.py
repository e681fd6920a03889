"""The settings: as an example file, and as a page."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from filaviva.settings import Settings

_PREFIX: Final = "FILAVIVA_"
_EXAMPLE_HEAD: Final = """\
# Every setting of every service. Written by `python -m filaviva.cli.reference`.
# Any of them may be read from a file instead: FILAVIVA_BROKER__URL_FILE=/run/secrets/broker-url
"""
_PAGE_HEAD: Final = """\
# Settings

<!-- written by `python -m filaviva.cli.reference` -->

Settings come from the environment. Each service reads the ones it needs, once, when it starts; a
wrong value stops the start with the variable's name, what was found and what is expected (exit code
2). Any variable may end in `_FILE`: then its value is read from that file, for secrets. Addresses
are URLs as `psql` and AMQP clients take them.

A setting marked *reserved* is accepted, and nothing reads it in this release.

| variable | default | what it is | values |
|---|---|---|---|
"""

_EXAMPLE_TAIL: Final = """\
# where traces go (docs/howto/trace-a-job.md); all variables are OpenTelemetry's own
#OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
"""
_PAGE_TAIL: Final = """
Traces are set up by OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, …):
[Trace a job](../howto/trace-a-job.md) lists those that matter.
"""


@dataclass(frozen=True, slots=True)
class _Variable:
    name: str
    field: FieldInfo

    @property
    def default(self) -> str | None:
        """Give the default as it would be typed; None if a value is required."""
        found = self.field.default
        if found is PydanticUndefined:
            return None
        return "" if found in (None, ()) else str(found)

    @property
    def limits(self) -> str:
        """Say which values are taken."""
        signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
        parts = [
            f"{sign} {getattr(rule, name)}"
            for rule in self.field.metadata
            for name, sign in signs.items()
            if getattr(rule, name, None) is not None
        ]
        secret = "SecretStr" in str(self.field.annotation) or self.field.annotation is SecretStr
        return ", ".join(parts) or ("secret" if secret else "")


def example() -> str:
    """Write `.env.example`."""
    lines = [_EXAMPLE_HEAD]
    for variable in _variables(Settings, _PREFIX):
        lines.append(f"# {variable.field.description}")
        if variable.default is None:
            lines.append(f"{variable.name}={variable.field.description}")
        else:
            lines.append(f"#{variable.name}={variable.default}")
        lines.append("")
    return "\n".join([*lines, _EXAMPLE_TAIL])


def page() -> str:
    """Write the reference page."""
    rows = [
        f"| `{variable.name}` | {_default(variable)} | {variable.field.description} "
        f"| {variable.limits} |"
        for variable in _variables(Settings, _PREFIX)
    ]
    return _PAGE_HEAD + "\n".join(rows) + "\n" + _PAGE_TAIL


def _default(variable: _Variable) -> str:
    match variable.default:
        case None:
            return "**required**"
        case "":
            return ""
        case text:
            return f"`{text}`"


def _variables(model: type[BaseModel], prefix: str) -> Iterator[_Variable]:
    for name, field in model.model_fields.items():
        variable, group = f"{prefix}{name.upper()}", _group(field.annotation)
        if group is None:
            yield _Variable(variable, field)
        else:
            yield from _variables(group, f"{variable}__")


def _group(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None
