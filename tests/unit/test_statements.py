"""Rules that every statement keeps, also those that are written tomorrow."""

import re

from fixtures.statements import texts

# What holds the row of a job, before an event of it is written.
_HELD = re.compile(
    r"FROM filaviva\.jobs\b.*?FOR (NO KEY )?UPDATE"
    r"|UPDATE filaviva\.jobs\b|INSERT INTO filaviva\.jobs\b",
    re.DOTALL,
)
_EVENT = "INSERT INTO filaviva.job_events"
# Whose caller holds them by an earlier statement of the transaction; their own tests run on a
# database that refuses an event without the lock.
_HELD_BEFORE = {"filaviva.operations.batches._ITEM_EVENTS"}


def test_every_statement_that_writes_an_event_holds_the_row_of_its_job() -> None:
    # An event whose number is drawn without the lock may be committed after a later one, and who
    # follows the stream by number never sees it.
    events = {name: text for name, text in texts() if _EVENT in text}

    loose = {name for name, text in events.items() if not _HELD.search(text.partition(_EVENT)[0])}

    assert len(events) > 10
    assert loose == _HELD_BEFORE
