ALTER TABLE filaviva.jobs ADD COLUMN callback_url text;
