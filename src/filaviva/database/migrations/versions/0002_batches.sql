-- A job that is a batch has a row here; its items are jobs with `parent_id` and `item_index`.
-- Children never write it: whoever changed some locks it and reads all of them again.
CREATE TABLE filaviva.batches (
    job_id          uuid PRIMARY KEY,
    total           integer NOT NULL CHECK (total > 0),
    accept_partial  boolean NOT NULL DEFAULT true,
    fail_fast       boolean NOT NULL DEFAULT false,
    max_failures    integer,
    concurrency     integer CHECK (concurrency > 0),
    told            text NOT NULL DEFAULT '',   -- the items' states as last told, a letter each
    ended_at        timestamptz
);
CREATE INDEX batches_open ON filaviva.batches (job_id) WHERE ended_at IS NULL;
