"""The base of every message body: it names itself, never changes, and reads tolerantly."""

from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import BaseModel, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema, to_jsonable_python

from filaviva_contracts.lint import unevolvable
from filaviva_contracts.names import check_type, check_version
from filaviva_contracts.part import Part

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_OURS = ("contract_type", "contract_version")
_COPIED = (list, dict, set, frozenset, tuple, BaseModel)
_DECIMAL = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_DIGITS = (("max_digits", "x-maxDigits"), ("decimal_places", "x-decimalPlaces"))


class Contract(Part):
    """A message body with a type and a version.

    `class Paid(Contract, type="order.paid", version=1)`: frozen once read, deaf to fields that a
    newer producer has added, camelCase on the wire.
    """

    contract_type: ClassVar[str]
    contract_version: ClassVar[int]

    def __init_subclass__(cls, *, type: object = None, version: object = None, **rest: Any) -> None:  # noqa: A002 - the public keyword
        if rest:
            found = ", ".join(sorted(rest))
            raise TypeError(f"contract {cls.__qualname__}: found {found}, expected type, version")
        super().__init_subclass__()
        try:
            cls.contract_type = check_type(type)
            cls.contract_version = check_version(version)
        except ValueError as wrong:
            raise TypeError(f"contract {cls.__qualname__}: {wrong}") from None

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        fields = cls.model_fields
        for name in _OURS:
            if name in fields:
                raise TypeError(f"contract {cls.__qualname__}: {name} is not free for a field")
        _refuse_twins(cls.__qualname__, [field.alias or name for name, field in fields.items()])
        if cls.__pydantic_complete__:  # else it names what is not there yet
            cls._refuse_unevolvable()

    @classmethod
    def _refuse_unevolvable(cls) -> None:
        flaws = unevolvable(cls)
        if flaws:
            raise TypeError(f"contract {cls.__qualname__}: {'; '.join(flaws)}")

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Give the closed JSON Schema (2020-12): what a producer may send, and nothing else.

        TypeError says what cannot be evolved, or written as one.
        """
        cls._refuse_unevolvable()
        try:
            schema = cls.model_json_schema(
                by_alias=True, mode="validation", schema_generator=_ClosedSchema
            )
        # The others are what pydantic stumbles with over a field that is called `$ref` or `$defs`.
        except (PydanticUserError, LookupError, AttributeError) as failed:
            reason = str(failed).partition("\n")[0]
            raise TypeError(
                f"contract {cls.__qualname__}: found what JSON Schema has no words for ({reason}), "
                "expected fields that are JSON, with names that are no keywords of its own"
            ) from failed
        return {"$schema": DIALECT, **schema}


class PreciseSchema(GenerateJsonSchema):
    """Say what pydantic's schema leaves out, so that a change of it can be seen."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        made = super().decimal_schema(schema)
        # JSON Schema has no word for digits, neither of text nor of numbers.
        limits = {word: schema[name] for name, word in _DIGITS if name in schema}  # type: ignore[literal-required]
        for branch in made.get("anyOf", [made]):
            branch.update(limits)
            if branch.get("type") == "string":  # else any text would pass the edge
                branch.setdefault("pattern", _DECIMAL)
        return made

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        made = super().tagged_union_schema(schema)
        told = made.get("discriminator", {}).get("propertyName")
        if told is not None:  # has it a default or not: who reads finds out by it what it is
            made["required"] = [told]
        return made

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        made = super().default_schema(schema)
        found = {} if "default" in made else _of_factory(schema)
        return {**made, **found}

    def encode_default(self, dft: Any) -> Any:
        return super().encode_default(_sorted(dft))

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        made = super().dict_schema(schema)
        patterns = made.get("patternProperties", {})
        if len(patterns) == 1:  # which would let every other name pass
            ((pattern, values),) = patterns.items()
            names = {"type": "string", **made.get("propertyNames", {}), "pattern": pattern}
            del made["patternProperties"]
            made |= {"additionalProperties": values, "propertyNames": names}
        return made


class _ClosedSchema(PreciseSchema):
    """Objects take no unknown members, except where a model says so itself."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _closed(super().model_schema(schema))

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _closed(super().typed_dict_schema(schema))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _closed(super().dataclass_schema(schema))


def _of_factory(schema: core_schema.WithDefaultSchema) -> dict[str, Any]:
    """Write down what a factory makes where it makes the same every time: what Python has to copy.

    A factory of anything else (an id, the time, the host's name) has a reason to be one.
    """
    factory = schema.get("default_factory")
    if factory is None or schema.get("default_factory_takes_data"):
        return {}
    made = [_plain(factory), _plain(factory)]  # type: ignore[arg-type]
    return {"default": made[0]} if made[0] == made[1] is not None else {}


def _sorted(default: Any) -> Any:
    # A set of texts comes in another order in every process.
    return sorted(default, key=repr) if isinstance(default, set | frozenset) else default


def _plain(factory: Callable[[], Any]) -> Any:
    try:
        made = factory()
        return to_jsonable_python(_sorted(made)) if isinstance(made, _COPIED) else None
    except Exception:  # noqa: BLE001 - the border to code that is not ours
        return None  # whoever reads such a message is told


def _closed(schema: JsonSchemaValue) -> JsonSchemaValue:
    if "$ref" not in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def _refuse_twins(owner: str, names: list[str]) -> None:
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise TypeError(f"contract {owner}: two fields are called {', '.join(twins)} on the wire")
