"""Read NF-e, NFC-e, CT-e and CT-e OS without a model. Pure: bytes in, values out."""

from decimal import Decimal
from xml.etree import ElementTree as ET

from invoices.models import Invoice, Line, Party, Totals

# The outer element of every document that can be extracted.
ROOTS = ("NFe", "nfeProc", "CTe", "cteProc", "CTeOS", "cteOSProc")
_KINDS = {"55": "nfe", "65": "nfce", "57": "cte", "67": "cte_os"}
_ZERO = Decimal("0.00")
_NFE_SUMS = {
    "goods": "vProd",
    "discount": "vDesc",
    "exempted_tax": "vICMSDeson",
    "freight": "vFrete",
    "insurance": "vSeg",
    "other_costs": "vOutro",
    "excise": "vIPI",
    "returned_excise": "vIPIDevol",
    "substitution_tax": "vST",
    "poverty_fund": "vFCPST",
    "import_duty": "vII",
    "total": "vNF",
}


class NotAnInvoice(ValueError):
    """The text is something else; the message names what was found and what was expected."""


def check_root(text: str) -> None:
    """Raise NotAnInvoice unless the outer element is one that can be extracted."""
    _root(text)


def parse(text: str) -> Invoice:
    """Extract the invoice; raise NotAnInvoice if the text holds none."""
    root = _root(text)
    # A CT-e names the invoices it carries in elements called infNFe too: the root decides.
    if _local(root) in ("NFe", "nfeProc"):
        return _goods(_must(root, "infNFe"))
    return _transport(_must(root, "infCte"))


def _root(text: str) -> ET.Element:
    root = _tree(text)
    if _local(root) in ROOTS:
        return root
    raise NotAnInvoice(
        f"the document's root is <{_local(root)}>, which is not an invoice; "
        f"expected one of {', '.join(f'<{name}>' for name in ROOTS)}"
    )


def _goods(body: ET.Element) -> Invoice:
    declared = _must(body, "ICMSTot")
    sums = {field: _money(declared, tag) for field, tag in _NFE_SUMS.items()}
    return _invoice(
        body,
        number="nNF",
        recipient=_party(body.find("{*}dest")),
        lines=[_product(item) for item in body.iterfind("{*}det") if _counts(item)],
        totals=Totals.model_validate(sums),
    )


def _transport(body: ET.Element) -> Invoice:
    price = _must(body, "vPrest")
    sums = dict.fromkeys(_NFE_SUMS, _ZERO)
    lines = [_component(part) for part in price.iterfind("{*}Comp")]
    sums["goods"] = sum((line.amount for line in lines), _ZERO)
    sums["total"] = _money(price, "vTPrest")
    return _invoice(
        body,
        number="nCT",
        recipient=_party(_or(body.find("{*}dest"), body.find("{*}toma"))),
        lines=lines,
        totals=Totals.model_validate(sums),
    )


def _invoice(
    body: ET.Element, *, number: str, recipient: Party | None, lines: list[Line], totals: Totals
) -> Invoice:
    heading = _must(body, "ide")
    return Invoice.model_validate(
        {
            "kind": _KINDS.get(_text(heading, "mod"), _text(heading, "mod")),
            # Some issuers leave the prefix out.
            "access_key": body.get("Id", "").removeprefix("NFe").removeprefix("CTe"),
            "number": _text(heading, number),
            "issued_at": _text(heading, "dhEmi"),
            "currency": "BRL",
            "issuer": _party(_must(body, "emit")),
            "recipient": recipient,
            "lines": lines,
            "totals": totals,
        }
    )


def _counts(item: ET.Element) -> bool:
    # indTot 0 marks a line that is shown but is no part of the sums.
    return _text(_must(item, "prod"), "indTot", "1") == "1"


def _product(item: ET.Element) -> Line:
    product = _must(item, "prod")
    return Line(
        description=_text(product, "xProd"),
        quantity=Decimal(_text(product, "qCom", "1")),
        amount=_money(product, "vProd"),
    )


def _component(part: ET.Element) -> Line:
    return Line(description=_text(part, "xNome"), quantity=Decimal(1), amount=_money(part, "vComp"))


def _party(element: ET.Element | None) -> Party | None:
    if element is None:
        return None
    tax_id = _text(element, "CNPJ") or _text(element, "CPF")
    return Party(name=_text(element, "xNome"), tax_id=tax_id or None)


def _tree(text: str) -> ET.Element:
    try:
        # The standard parser resolves no external entity and limits expansion (expat >= 2.4.1).
        return ET.fromstring(text.lstrip("\ufeff").strip())  # noqa: S314 - see above
    except ET.ParseError as broken:
        raise NotAnInvoice(
            f"the document is not XML ({broken}); expected a fiscal document in XML"
        ) from broken


def _local(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]


def _first(element: ET.Element, tag: str) -> ET.Element | None:
    return element.find(f".//{{*}}{tag}")


def _must(element: ET.Element, tag: str) -> ET.Element:
    found = _first(element, tag)
    if found is None:
        raise NotAnInvoice(f"<{_local(element)}> holds no <{tag}>; expected one")
    return found


def _or(one: ET.Element | None, other: ET.Element | None) -> ET.Element | None:
    return other if one is None else one


def _text(element: ET.Element, tag: str, default: str = "") -> str:
    return (element.findtext(f"{{*}}{tag}") or default).strip()


def _money(element: ET.Element, tag: str) -> Decimal:
    return Decimal(_text(element, tag, "0.00"))
