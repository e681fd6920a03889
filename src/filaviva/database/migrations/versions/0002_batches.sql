-- A job that is a batch has a row here; its items are jobs with `parent_id` and `item_index`.
-- Children never write it: whoever changed some locks the batch and reads all of them again.
-- The batch itself is parked for its `items` all its life: no wake-up, no claim, no deadline.
CREATE TABLE filaviva.batches (
    job_id          uuid PRIMARY KEY,
    total           integer NOT NULL CHECK (total > 0),
    accept_partial  boolean,                    -- null: unless too many of them failed
    fail_fast       boolean NOT NULL DEFAULT false,
    max_failures    integer CHECK (max_failures >= 0),
    concurrency     integer CHECK (concurrency > 0),
    forgiven        integer NOT NULL DEFAULT 0, -- failures that do not count since it went on
    told            text NOT NULL DEFAULT '',   -- the items' states as last told, a letter each
    ended_at        timestamptz                 -- null: the sweeper looks after it
) WITH (fillfactor = 50);
CREATE INDEX batches_open ON filaviva.batches (job_id) WHERE ended_at IS NULL;

-- A backstop only, as before: a batch that ended with some of its items goes on when others are
-- sent back; no other job that succeeded runs again.
CREATE OR REPLACE FUNCTION filaviva.refuse_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'succeeded' AND NEW.state = 'running'
        AND EXISTS (SELECT FROM filaviva.batches WHERE job_id = OLD.id) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'job % must not go from % to %', OLD.id, OLD.state, NEW.state
        USING ERRCODE = 'check_violation';
END $$;
