"""What a worker says it reads: others send it what is in there, and nothing else."""

import pytest

from filaviva import App, Contract
from filaviva_worker.worker import what_it_reads


class First(Contract, type="invoice.extract", version=1):
    """The oldest version."""


class Second(Contract, type="invoice.extract", version=2):
    """The next one."""


class Fourth(Contract, type="invoice.extract", version=4):
    """There is no third any more."""


@pytest.mark.parametrize(
    ("contracts", "ranges"),
    [
        ([First], [(1, 1)]),
        ([First, Second], [(1, 2)]),
        ([Fourth, First, Second], [(1, 2), (4, 4)]),
        ([First, Fourth], [(1, 1), (4, 4)]),
    ],
)
def test_a_version_that_is_left_out_is_not_said_to_be_read(
    contracts: list[type[Contract]], ranges: list[tuple[int, int]]
) -> None:
    app = App("shop")
    for contract in contracts:
        app.handler(contract)(_nothing)

    said = [(each["min"], each["max"]) for each in what_it_reads(app)]

    assert said == ranges


async def _nothing(_job: Contract, _ctx: object) -> None:
    """Do nothing."""
