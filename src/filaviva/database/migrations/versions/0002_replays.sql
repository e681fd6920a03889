-- A message that is not ours is published by whoever holds its letter, also while the answer is unknown.
ALTER TABLE filaviva.replay_letters ADD COLUMN held_until timestamptz;

CREATE INDEX replay_letters_held ON filaviva.replay_letters (replay_id)
    WHERE state = 'waiting' AND held_until IS NOT NULL;
