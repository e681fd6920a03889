-- A schedule may fire a batch: `items` are the data of its items, `batch` says when and how it ends.
ALTER TABLE filaviva.schedules ADD COLUMN items jsonb;
ALTER TABLE filaviva.schedules ADD COLUMN batch jsonb;

-- What becomes of a time that comes while the job of the one before has not ended.
ALTER TABLE filaviva.schedules ADD COLUMN overlap text NOT NULL DEFAULT 'allow'
    CHECK (overlap IN ('allow', 'skip', 'queue'));
ALTER TABLE filaviva.schedules ADD COLUMN skipped bigint NOT NULL DEFAULT 0;
ALTER TABLE filaviva.schedules ADD COLUMN last_skipped_at timestamptz;

-- Times that have come and wait, for a limit or for the job before, and when to look again.
ALTER TABLE filaviva.schedules ADD COLUMN waiting timestamptz[] NOT NULL DEFAULT '{}';
ALTER TABLE filaviva.schedules ADD COLUMN look_again_at timestamptz;
CREATE INDEX schedules_held ON filaviva.schedules (look_again_at)
    WHERE enabled AND look_again_at IS NOT NULL;
