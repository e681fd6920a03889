"""The messages this package accepts."""

from filaviva import Contract
from pydantic import HttpUrl


class ExtractInvoice(Contract, type="invoice.extract", version=1):
    """Extract the fiscal document at this address."""

    document_url: HttpUrl
