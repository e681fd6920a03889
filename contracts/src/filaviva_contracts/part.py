"""What contracts are made of: models inside them, and files that stay where they are."""

from functools import lru_cache
from typing import Annotated, Any

from pydantic import (
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
)
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails


class Part(BaseModel):
    """A model inside a contract or a result: frozen, camelCase, tolerant as they are.

    Tolerant is what reads (`model_validate`); whoever makes one may not mistype a field: an
    optional one would be lost without a word.
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

    def __init__(self, /, **data: Any) -> None:
        known = _names(type(self))
        unknown = [] if known is None else sorted(data.keys() - known)
        if unknown:
            flaws = [
                InitErrorDetails(type="extra_forbidden", loc=(n,), input=data[n]) for n in unknown
            ]
            raise ValidationError.from_exception_data(type(self).__name__, flaws)
        super().__init__(**data)

    # Pydantic's own mark: what reads does not come through here.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


@lru_cache(maxsize=1024)
def _names(model: type[Part]) -> frozenset[str] | None:
    """Give what a model's fields may be called; None where it says itself what it takes."""
    fields = model.model_fields
    given = [field.validation_alias or field.alias for field in fields.values()]
    aliases = [alias for alias in given if alias is not None]
    texts = {alias for alias in aliases if isinstance(alias, str)}
    if model.model_config.get("extra") != "ignore" or len(texts) < len(aliases):
        return None
    return frozenset({*fields, *texts})


class File(Part):
    """Content by reference: a message says where it is and how to know it again, not what it is."""

    url: AnyUrl
    media_type: str | None = None
    size: Annotated[int, Field(ge=0)] | None = None
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = None
