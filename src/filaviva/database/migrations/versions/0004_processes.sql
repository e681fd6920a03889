-- Every process of ours, seen every few seconds: how it is set, what it measures, and who has asked for
-- its metrics. No secret and no address is in it.
CREATE TABLE filaviva.processes (
    id            text PRIMARY KEY,
    service       text NOT NULL,
    host          text NOT NULL,
    pid           integer NOT NULL,
    release       text NOT NULL,
    settings      jsonb NOT NULL,
    measured      jsonb NOT NULL,
    scraped_at    timestamptz,                 -- the last GET /metrics,
    scraped_by    text,                        -- and its User-Agent
    started_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    stopped_at    timestamptz
) WITH (fillfactor = 50);
