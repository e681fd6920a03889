ALTER TABLE filaviva.contracts
    ADD COLUMN inbox_queue  text;   -- of an event's handler that has moved: its inbox is still named after this one
