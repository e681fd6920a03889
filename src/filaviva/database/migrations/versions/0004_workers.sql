-- What a worker did within the last minute, as it counted itself: rates without a look at the jobs.
-- {"seconds", "work": [{"queue", "type", "started", "succeeded", "retry", …, "costUsd"}]}
ALTER TABLE filaviva.workers ADD COLUMN lately jsonb NOT NULL DEFAULT '{}';
ALTER TABLE filaviva.workers ADD COLUMN release text;
ALTER TABLE filaviva.workers ADD COLUMN draining_at timestamptz;

-- The oldest letter that waits for a person, whoever's it is.
CREATE INDEX dead_letters_waiting ON filaviva.dead_letters (created_at)
    WHERE status IN ('open', 'replaying');
