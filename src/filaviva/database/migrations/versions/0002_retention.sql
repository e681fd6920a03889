-- What was removed of a finished job before the job itself, and when its data was erased on request.
ALTER TABLE filaviva.jobs ADD COLUMN removed text[];
ALTER TABLE filaviva.jobs ADD COLUMN erased_at timestamptz;

-- What is left of a removed job: enough to say that it is gone, and to whom.
CREATE TABLE filaviva.tombstones (
    job_id   uuid PRIMARY KEY,
    tenant   text NOT NULL,
    type     text NOT NULL,
    gone_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX tombstones_oldest ON filaviva.tombstones (gone_at);
CREATE INDEX dead_letters_closed ON filaviva.dead_letters (closed_at) WHERE closed_at IS NOT NULL;
CREATE INDEX replay_letters_of_letter ON filaviva.replay_letters (dead_letter_id);
