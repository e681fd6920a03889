"""The figures below were read from the documents' own XML, one by one."""

from decimal import Decimal

import pytest
from nfelib.cte.bindings.v4_0.cte_os_v4_00 import CteOs
from nfelib.cte.bindings.v4_0.cte_v4_00 import Cte
from nfelib.nfe.bindings.v4_0.proc_nfe_v4_00 import NfeProc
from xsdata.formats.dataclass.parsers import XmlParser

from invoices import documents
from invoices.checking import DoesNotAddUp, check_totals
from invoices.models import Invoice
from invoices.parsing import NotAnInvoice, parse

# name, kind, number, lines, goods, total
TEN = [
    ("nfe-1687", "nfe", "1687", 3, "5780.00", "5780.00"),
    ("nfe-47428", "nfe", "47428", 6, "294.64", "347.28"),
    ("nfe-47605", "nfe", "47605", 4, "513.60", "610.37"),
    ("nfe-47686", "nfe", "47686", 41, "3115.23", "3251.92"),
    ("nfe-26663", "nfe", "26663", 3, "84471.40", "95700.68"),
    ("nfe-27677", "nfe", "27677", 4, "18794.12", "19606.03"),
    ("nfe-29248", "nfe", "29248", 2, "56640.02", "64237.04"),
    ("nfe-1", "nfe", "1", 1, "14.00", "14.00"),
    ("cte-22222", "cte", "22222", 4, "11807.75", "11807.75"),
    ("cte-os-26", "cte_os", "26", 1, "2500.00", "2500.00"),
]
NAMES = [row[0] for row in TEN]


def text_of(name: str) -> str:
    document = documents.named(name)
    assert document is not None
    return document.read().decode("utf-8-sig")


def test_the_ten_documents_are_the_ones_listed_here():
    assert [document.name for document in documents.TEN] == NAMES


@pytest.mark.parametrize(("name", "kind", "number", "lines", "goods", "total"), TEN, ids=NAMES)
def test_a_document_is_read_exactly(name, kind, number, lines, goods, total):
    invoice = parse(text_of(name))

    assert (invoice.kind, invoice.number, len(invoice.lines)) == (kind, number, lines)
    assert invoice.totals.goods == Decimal(goods)
    assert invoice.totals.total == Decimal(total)


@pytest.mark.parametrize("name", [*NAMES, "nfe-47671"])
def test_every_invoice_adds_up_to_its_declared_total(name):
    invoice = parse(text_of(name))

    assert check_totals(invoice) == invoice.totals.total


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("nfe")])
def test_the_sums_of_goods_are_those_that_nfelib_reads(name):
    declared = XmlParser().from_string(text_of(name), NfeProc).NFe.infNFe.total.ICMSTot

    totals = parse(text_of(name)).totals

    assert totals.total == Decimal(declared.vNF)
    assert totals.goods == Decimal(declared.vProd)
    assert totals.discount == Decimal(declared.vDesc)
    assert totals.substitution_tax == Decimal(declared.vST)
    assert totals.excise == Decimal(declared.vIPI)


@pytest.mark.filterwarnings("ignore::xsdata.exceptions.ConverterWarning")
@pytest.mark.parametrize(("name", "binding"), [("cte-22222", Cte), ("cte-os-26", CteOs)])
def test_the_transport_price_is_the_one_that_nfelib_reads(name, binding):
    declared = XmlParser().from_string(text_of(name), binding).infCte.vPrest.vTPrest

    assert parse(text_of(name)).totals.total == Decimal(declared)


def test_the_largest_invoice_has_its_discount_and_substitution_tax():
    totals = parse(text_of("nfe-47686")).totals

    assert totals.discount == Decimal("126.89")
    assert totals.substitution_tax == Decimal("263.58")


def test_an_access_key_without_prefix_is_read_too():
    assert parse(text_of("nfe-1")).access_key == "35200159594315000157550010000000012062777161"


def test_a_recipient_abroad_has_no_tax_id():
    recipient = parse(text_of("nfe-26663")).recipient

    assert recipient is not None
    assert recipient.name == "E.G.O. Elektro-Gerätebau GmbH"
    assert recipient.tax_id is None


def test_a_document_that_is_no_invoice_is_named_for_what_it_is():
    with pytest.raises(NotAnInvoice) as refused:
        parse(text_of("inut-101"))

    assert "root is <inutNFe>" in str(refused.value)
    assert "expected one of <NFe>, <nfeProc>, <CTe>" in str(refused.value)


@pytest.mark.parametrize("text", ["", "not xml", "<NFe>", "<NFe/>", "<CTe><infCte/></CTe>"])
def test_a_text_that_holds_no_invoice_is_refused(text):
    with pytest.raises(NotAnInvoice):
        parse(text)


def test_an_entity_bomb_does_not_explode():
    layers = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE b [<!ENTITY l0 "{"x" * 100}">{layers}]><NFe>&l11;</NFe>'

    with pytest.raises(NotAnInvoice):
        parse(bomb)


def test_an_external_entity_is_not_read():
    leak = '<!DOCTYPE b [<!ENTITY f SYSTEM "file:///etc/hostname">]><NFe>&f;</NFe>'

    with pytest.raises(NotAnInvoice):
        parse(leak)


def test_a_wrong_total_is_found():
    invoice = parse(text_of("nfe-47686"))
    wrong = invoice.totals.model_copy(update={"total": Decimal("3251.93")})

    with pytest.raises(DoesNotAddUp, match=r"parts sum to 3251\.92, but the total is 3251\.93"):
        check_totals(invoice.model_copy(update={"totals": wrong}))


def test_a_missing_line_is_found():
    invoice = parse(text_of("nfe-1687"))

    with pytest.raises(DoesNotAddUp, match=r"2 lines sum to .*, but goods are 5780\.00"):
        check_totals(invoice.model_copy(update={"lines": invoice.lines[1:]}))


@pytest.mark.parametrize("name", NAMES)
def test_an_invoice_survives_its_own_json(name):
    invoice = parse(text_of(name))

    assert Invoice.model_validate_json(invoice.model_dump_json()) == invoice


def test_the_schema_asks_for_everything_and_allows_nothing_else():
    schema = Invoice.model_json_schema()

    for part in (schema, *schema["$defs"].values()):
        assert part["additionalProperties"] is False
        assert sorted(part["required"]) == sorted(part["properties"])


def test_money_given_as_a_json_number_is_refused():
    answer = parse(text_of("nfe-1")).model_dump_json().replace('"total":"14.00"', '"total":14.00')

    with pytest.raises(ValueError, match="expected the figure as text"):
        Invoice.model_validate_json(answer)
