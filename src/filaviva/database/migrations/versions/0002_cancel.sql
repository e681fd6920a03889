ALTER TABLE filaviva.jobs ADD COLUMN cancel_requested_at timestamptz;
