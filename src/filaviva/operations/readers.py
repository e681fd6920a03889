"""What live workers read, as SQL for the statements that ask it."""

from typing import Final

# A worker that was not seen for a minute is gone.
READERS: Final = """
    SELECT DISTINCT served.queue, reads.type, reads.min, reads.max
    FROM filaviva.workers AS workers, unnest(workers.queues) AS served(queue),
        jsonb_to_recordset(workers.reads) AS reads(type text, min integer, max integer)
    WHERE workers.stopped_at IS NULL AND workers.last_seen_at > now() - interval '1 minute'"""
