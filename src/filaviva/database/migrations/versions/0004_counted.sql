-- What one process counted last, for all who look: {"jobs": [[queue, type, state, jobs], …],
-- "letters": [[type, letters], …]}. To count a large backlog is dear: nobody else has to.
CREATE TABLE filaviva.counted (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    counts  jsonb NOT NULL
) WITH (fillfactor = 50);
