"""What contracts are made of: models inside them, and files that stay where they are."""

from typing import Annotated

from pydantic import AnyUrl, BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel


class Part(BaseModel):
    """A model inside a contract or a result: frozen, camelCase, tolerant as they are."""

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


class File(Part):
    """Content by reference: a message says where it is and how to know it again, not what it is."""

    url: AnyUrl
    media_type: str | None = None
    size: Annotated[int, Field(ge=0)] | None = None
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = None
