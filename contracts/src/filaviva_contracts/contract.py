"""The base of every message body: it names itself, never changes, and reads tolerantly."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from filaviva_contracts.names import check_type, check_version

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_OURS = ("contract_type", "contract_version")


class Contract(BaseModel):
    """A message body with a type and a version.

    `class Paid(Contract, type="order.paid", version=1)`: frozen once read, deaf to fields that a
    newer producer has added, camelCase on the wire.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        allow_inf_nan=False,
        protected_namespaces=(),
    )

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

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Give the closed JSON Schema (2020-12): what a producer may send, and nothing else."""
        schema = cls.model_json_schema(
            by_alias=True, mode="validation", schema_generator=_ClosedSchema
        )
        return {"$schema": DIALECT, **schema}


class _ClosedSchema(GenerateJsonSchema):
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
