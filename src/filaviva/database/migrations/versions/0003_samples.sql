-- What was really sent, version by version: outlines without contents, for who has asked for them.
CREATE TABLE filaviva.contract_samples (
    type          text NOT NULL,
    version       integer NOT NULL,
    hash          bytea NOT NULL,
    outline       jsonb NOT NULL,
    seen          bigint NOT NULL DEFAULT 1,
    first_seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (type, version, hash)
);
