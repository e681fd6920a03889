-- What a repeat with an Idempotency-Key came to: the same request again is given the same answer.
CREATE TABLE filaviva.retries (
    tenant       text NOT NULL,
    key          text NOT NULL,
    job_id       uuid NOT NULL,
    fingerprint  bytea NOT NULL,
    retried      integer NOT NULL DEFAULT 0,
    refused      integer[] NOT NULL DEFAULT '{}',
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, key)
);
CREATE INDEX retries_of_job ON filaviva.retries (job_id);
