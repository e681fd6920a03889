ALTER TABLE filaviva.contracts
    ADD COLUMN read_as      integer,            -- the version that its data is upcast to; null: its own
    ADD COLUMN sunset       date,               -- its app means to read it until then
    ADD COLUMN announced_at timestamptz,        -- since when that is said
    ADD COLUMN examples     jsonb NOT NULL DEFAULT '[]';

-- Who still sends which version, by day: written now and then from what a process has counted.
CREATE TABLE filaviva.contract_uses (
    type     text NOT NULL,
    version  integer NOT NULL,
    day      date NOT NULL,
    source   text NOT NULL,                     -- an API key's id, an event's source, a schedule
    uses     bigint NOT NULL,
    last_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (type, version, day, source)
);
