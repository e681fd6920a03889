"""What is extracted from a document; also the schema the model's answer must fit."""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel


def _exact(value: object) -> object:
    """Refuse a number that may have lost digits on its way: a float cannot hold 0.10."""
    if isinstance(value, str | Decimal):
        return value
    raise ValueError(f"found {value!r}, expected the figure as text")


Money = Annotated[
    Decimal,
    BeforeValidator(_exact),
    Field(max_digits=17, decimal_places=2),
    WithJsonSchema({"type": "string", "pattern": r"^-?\d{1,15}\.\d{2}$"}),
]
Quantity = Annotated[
    Decimal,
    BeforeValidator(_exact),
    Field(max_digits=20, decimal_places=10),
    WithJsonSchema({"type": "string", "pattern": r"^\d{1,15}(\.\d{1,10})?$"}),
]
AccessKey = Annotated[str, StringConstraints(pattern=r"^\d{44}$")]


class _Part(BaseModel):
    # Closed and without defaults: what a provider's strict JSON mode asks for.
    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        serialize_by_alias=True,
        extra="forbid",
        frozen=True,
    )


class Party(_Part):
    """Someone named by the document; abroad there is no tax id."""

    name: str
    tax_id: str | None


class Line(_Part):
    """One product or one component of a transport price."""

    description: str
    quantity: Quantity
    amount: Money


class Totals(_Part):
    """The sums the issuer declares, in BRL; what a kind of document does not have is 0.00."""

    goods: Money
    discount: Money
    exempted_tax: Money
    freight: Money
    insurance: Money
    other_costs: Money
    excise: Money
    returned_excise: Money
    substitution_tax: Money
    poverty_fund: Money
    import_duty: Money
    total: Money


class Invoice(_Part):
    """One extracted fiscal document."""

    kind: Literal["nfe", "nfce", "cte", "cte_os"]
    access_key: AccessKey
    number: str
    issued_at: AwareDatetime
    currency: Literal["BRL"]
    issuer: Party
    recipient: Party | None
    lines: list[Line]
    totals: Totals
