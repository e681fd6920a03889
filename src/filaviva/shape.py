"""Values as JSON text and back, by the annotation of the function that returned them."""

import inspect
import json
import math
import re
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property
from types import SimpleNamespace
from typing import Any, get_type_hints

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from filaviva.errors import ConfigurationError, InvalidOutput, ResultTooLarge
from filaviva.flaws import flaws_of, sentence
from filaviva.schemas import SchemaCheck
from filaviva_contracts.contract import DIALECT, PreciseSchema

MAX_BYTES = 1024 * 1024
# With an even number of backslashes before it, \u0000 is an escape and not the text of one.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class Shape:
    """What a function returns: written as JSON text, checked, and read back."""

    def __init__(self, annotation: Any, *, owner: str, known: bool = True) -> None:
        self.known = known
        self._nothing = not known or annotation is None or annotation is type(None)
        try:
            self.adapter: TypeAdapter[Any] = TypeAdapter(annotation if known else Any)
            self.schema: dict[str, Any] | None = self._schema() if known else None
        except (PydanticSchemaGenerationError, PydanticUserError) as unfit:
            found = getattr(annotation, "__name__", repr(annotation))
            reason = str(unfit).partition("\n")[0]
            message = f"{owner} returns {found}, expected a type with a JSON form ({reason})"
            raise ConfigurationError(message) from unfit

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Shape":
        """Read a function's return annotation; without one any JSON will do."""
        bare = inspect.unwrap(_named(function))
        owner = getattr(bare, "__qualname__", repr(function))
        annotation = getattr(bare, "__annotations__", {}).get("return", inspect.Parameter.empty)
        if annotation is inspect.Parameter.empty:
            return cls(Any, owner=owner, known=False)
        return cls(_resolved(annotation, bare, owner), owner=owner)

    def encode(self, value: Any, *, limit: int = MAX_BYTES) -> str | None:
        """Write a value as JSON text (None: no value); InvalidOutput if it does not fit."""
        if value is None and self._nothing:
            return None
        try:
            fit = self.adapter.validate_python(value) if self.known else value
            plain = self._plain(fit)
            text = json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
            size = len(text.encode())
            if "null" in text:  # where the annotation says Any, pydantic writes NaN as null
                _refuse_unbounded(self.adapter.dump_python(fit, by_alias=True))
        except ValidationError as invalid:
            raise InvalidOutput(sentence("The result", flaws_of(invalid))) from invalid
        except (PydanticSerializationError, ValueError, RecursionError, TypeError) as unfit:
            raise InvalidOutput(f"The result has no JSON form: {_reason(unfit)}") from unfit
        if size > limit:
            raise ResultTooLarge(f"The result has {size} bytes, expected at most {limit}")
        self._check(plain, text)
        return None if value is None else text

    def decode(self, text: str | None) -> Any:
        """Read back what `encode` wrote."""
        return None if text is None else self.adapter.validate_json(text)

    def _plain(self, fit: Any) -> Any:
        if not self.known:
            return to_jsonable_python(fit, by_alias=True, inf_nan_mode="constants")
        return self.adapter.dump_python(fit, mode="json", by_alias=True, warnings="error")

    def _check(self, plain: Any, text: str) -> None:
        if _NUL.search(text):
            raise InvalidOutput("The result contains a NUL character")
        flaws = self._published.flaws(plain) if self._published else ()
        if flaws:
            raise InvalidOutput(sentence("The result", flaws))

    @cached_property
    def _published(self) -> SchemaCheck | None:
        # A model can be changed after it was validated: what leaves must fit what is published.
        return None if self.schema is None else SchemaCheck(self.schema)

    def _schema(self) -> dict[str, Any]:
        schema = self.adapter.json_schema(
            by_alias=True, mode="serialization", schema_generator=PreciseSchema
        )
        return {"$schema": DIALECT, **schema}


def _refuse_unbounded(value: Any) -> None:
    match value:
        case float() if not math.isfinite(value):
            raise ValueError("it contains NaN or an infinity")
        case Mapping():
            _refuse_unbounded(list(value.values()))
        case list() | tuple() | set() | frozenset() | deque():
            for each in value:
                _refuse_unbounded(each)


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    """Look through partials and callable objects to what carries the annotations."""
    while hasattr(function, "func"):
        function = function.func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    called: Callable[..., Any] = type(function).__call__
    return called


def _resolved(annotation: Any, bare: Callable[..., Any], owner: str) -> Any:
    # Only the return annotation: the others may name what is imported for type checkers alone.
    alone = SimpleNamespace(__annotations__={"return": annotation})
    names = getattr(bare, "__globals__", {})
    try:
        return get_type_hints(alone, globalns=names, include_extras=True)["return"]
    except (NameError, TypeError, SyntaxError, AttributeError) as unknown:
        message = (
            f"{owner} returns {annotation!r}, expected a name that its module knows ({unknown})"
        )
        raise ConfigurationError(message) from unknown


def _reason(unfit: Exception) -> str:
    if isinstance(unfit, UnicodeEncodeError):
        return "it contains half of a surrogate pair"
    return " ".join(str(unfit).split())[:500]
