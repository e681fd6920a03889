-- What is too large for a message: its text as it was sent, so that its hash can be checked.
CREATE TABLE filaviva.contents (
    tenant      text NOT NULL,
    sha256      bytea NOT NULL CHECK (octet_length(sha256) = 32),
    data        text NOT NULL,
    meaning     bytea NOT NULL,                 -- of the JSON, however it is written: to erase it
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    used_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, sha256)
);
CREATE INDEX contents_unused ON filaviva.contents (used_at);
CREATE INDEX contents_meaning ON filaviva.contents (tenant, meaning);
