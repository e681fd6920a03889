"""A handler of an event is a job type of its own, known by its name."""

from typing import Any

import pytest

from filaviva import App, ConfigurationError, Contract, Policy


class Issued(Contract, type="invoice.issued", version=1):
    number: int


async def book(_event: Issued, _ctx: Any) -> None:
    pass


async def thank(_event: Issued, _ctx: Any) -> None:
    pass


def test_an_event_has_as_many_handlers_as_are_registered_for_it() -> None:
    app = App("shop")
    app.on_event(Issued, queue="books")(book)
    app.on_event(Issued, queue="mail", name="thanks")(thank)

    names = [(each.job_type, each.queue, each.event) for each in app.all_handlers()]

    assert names == [
        ("invoice.issued:book", "books", "invoice.issued"),
        ("invoice.issued:thanks", "mail", "invoice.issued"),
    ]
    assert app.find("invoice.issued:book", 1) is not None
    assert app.find("invoice.issued", 1) is None
    assert app.queues == ("books", "mail")


def test_a_contract_may_be_a_job_and_an_event() -> None:
    app = App("shop")
    app.handler(Issued)(book)
    app.on_event(Issued)(thank)

    assert {*app.handlers} == {"invoice.issued", "invoice.issued:thank"}


def test_a_function_made_inside_another_is_called_by_its_own_name() -> None:
    async def inner(_event: Issued, _ctx: Any) -> None:
        pass

    app = App("shop")
    app.on_event(Issued)(inner)

    assert [each.name for each in app.all_handlers()] == ["inner"]


def test_two_handlers_of_one_name_are_refused_with_the_way_out() -> None:
    app = App("shop")
    app.on_event(Issued)(book)

    with pytest.raises(ConfigurationError, match="expected another name for one of them"):
        app.on_event(Issued)(book)


@pytest.mark.parametrize("name", ["", "1st", "a:b", "a b", "x" * 50, 7])
def test_a_name_that_could_not_be_a_part_of_a_type_is_refused(name: Any) -> None:
    with pytest.raises(ConfigurationError, match="give it one: name="):
        App("shop").on_event(Issued, name=name)(book)


def test_an_app_may_have_the_end_of_all_its_jobs_told() -> None:
    app = App("shop", lifecycle=True)
    app.handler(Issued, policy=Policy(max_attempts=2))(book)
    app.on_event(Issued)(thank)

    policies = [each.policy for each in app.all_handlers()]

    assert [policy.lifecycle for policy in policies] == [True, True]
    assert policies[0].max_attempts == 2
    assert policies[0].stored()["lifecycle"] is True
