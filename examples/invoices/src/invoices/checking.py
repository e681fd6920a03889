"""Check that an extracted invoice adds up: a model may misread a figure."""

from decimal import Decimal

from invoices.models import Invoice, Totals


class DoesNotAddUp(ValueError):
    """The figures of an answer contradict each other; the message shows both sums."""


def check_totals(invoice: Invoice) -> Decimal:
    """Return the total once lines and declared sums agree with it; raise DoesNotAddUp if not."""
    lines = sum((line.amount for line in invoice.lines), Decimal("0.00"))
    if lines != invoice.totals.goods:
        raise DoesNotAddUp(
            f"{len(invoice.lines)} lines sum to {lines}, but goods are {invoice.totals.goods}"
        )
    expected = _sums(invoice.totals)
    if invoice.totals.total not in expected:
        raise DoesNotAddUp(
            f"the parts sum to {expected[0]}, but the total is {invoice.totals.total}"
        )
    return invoice.totals.total


def _sums(totals: Totals) -> tuple[Decimal, Decimal]:
    """Return the total the parts make, and the same with import duty."""
    added = (
        totals.freight
        + totals.insurance
        + totals.other_costs
        + totals.excise
        + totals.returned_excise
        + totals.substitution_tax
        + totals.poverty_fund
    )
    total = totals.goods - totals.discount - totals.exempted_tax + added
    # Importers may have counted the duty within the goods already; both are in use.
    return total, total + totals.import_duty
