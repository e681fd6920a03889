"""The real fiscal documents the example reads: samples of the installed package nfelib."""

from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable


class DocumentMissing(LookupError):
    """The installed nfelib does not hold a sample the example needs."""


@dataclass(frozen=True, slots=True)
class Document:
    """One sample: a short name to speak of it, and where nfelib keeps it."""

    name: str
    folder: str
    file: str

    def read(self) -> bytes:
        """Return the document exactly as the package holds it."""
        return self._place().read_bytes()

    def _place(self) -> Traversable:
        place = files("nfelib").joinpath(self.folder).joinpath(self.file)
        if not place.is_file():
            raise DocumentMissing(f"nfelib has no {self.folder}/{self.file}; expected nfelib 3.2")
        return place


_NFE = "nfe/samples/v4_0/leiauteNFe"
_CTE = "cte/samples/v4_0"

TEN = (
    Document("nfe-1687", _NFE, "26180875335849000115550010000016871192213331-nfe.xml"),
    Document("nfe-47428", _NFE, "35180834128745000152550010000474281920007498-nfe.xml"),
    Document("nfe-47605", _NFE, "35180834128745000152550010000476051695511860-nfe.xml"),
    Document("nfe-47686", _NFE, "35180834128745000152550010000476861118934859-nfe.xml"),
    Document("nfe-26663", _NFE, "42210775277525000178550030000266631762885493-procNFe.xml"),
    Document("nfe-27677", _NFE, "42211275277525000178550030000276771368212013-procNFe.xml"),
    Document("nfe-29248", _NFE, "42220575277525000178550030000292481295366801-procNFe.xml"),
    Document("nfe-1", _NFE, "NFe35200159594315000157550010000000012062777161.xml"),
    Document("cte-22222", _CTE, "35190602427026001207570040000522031000522035-cte-multimodal.xml"),
    Document("cte-os-26", _CTE, "35170799999999999999670000000000261309301440-cte-of.xml"),
)

# What the sender of the wrong document had meant to send.
SPARE = Document("nfe-47671", _NFE, "35180834128745000152550010000476711079516696-nfe.xml")

# A real document, but it voids a range of numbers: there is nothing to extract.
NOT_AN_INVOICE = Document(
    "inut-101",
    "nfe/samples/v4_0/leiauteInutNFe",
    "41080676472349000430550010000001041671821888-ped-inu.xml",
)

ALL = (*TEN, SPARE, NOT_AN_INVOICE)


def named(name: str) -> Document | None:
    """Return the document of this name, None if there is none."""
    return next((document for document in ALL if document.name == name), None)
