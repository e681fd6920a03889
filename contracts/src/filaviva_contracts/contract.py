"""The base of every message body: it names itself, never changes, and reads tolerantly."""

from typing import Any, ClassVar

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from filaviva_contracts.lint import unevolvable
from filaviva_contracts.names import check_type, check_version
from filaviva_contracts.part import Part

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_OURS = ("contract_type", "contract_version")
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
        """Give the closed JSON Schema (2020-12): what a producer may send, and nothing else."""
        cls._refuse_unevolvable()
        schema = cls.model_json_schema(
            by_alias=True, mode="validation", schema_generator=_ClosedSchema
        )
        return {"$schema": DIALECT, **schema}


class PreciseSchema(GenerateJsonSchema):
    """Say what pydantic's schema leaves out, so that a change of it can be seen."""

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        made = super().decimal_schema(schema)
        # JSON Schema has no word for digits, neither of text nor of numbers.
        limits = {word: schema[name] for name, word in _DIGITS if name in schema}  # type: ignore[literal-required]
        for branch in made.get("anyOf", [made]):
            branch.update(limits)
        return made

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


def _closed(schema: JsonSchemaValue) -> JsonSchemaValue:
    if "$ref" not in schema:
        schema.setdefault("additionalProperties", False)
    return schema


def _refuse_twins(owner: str, names: list[str]) -> None:
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise TypeError(f"contract {owner}: two fields are called {', '.join(twins)} on the wire")
