-- A function that handles an event is a job type of its own, `event type:handler name`; the contract
-- of the event itself has no queue.
ALTER TABLE filaviva.contracts ADD COLUMN event text;

CREATE INDEX contracts_of_event ON filaviva.contracts (event, version) WHERE event IS NOT NULL;

-- CloudEvents attributes of an event that is not our own message: its source, its tenant, its time.
ALTER TABLE filaviva.outbox ADD COLUMN attributes jsonb;
