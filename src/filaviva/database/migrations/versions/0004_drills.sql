-- Each drill and what it found; one without an end was cut off, or runs.
CREATE TABLE filaviva.drills (
    id           uuid PRIMARY KEY,
    author       text NOT NULL,
    began_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at     timestamptz,
    passed       boolean NOT NULL DEFAULT false CHECK (NOT passed OR ended_at IS NOT NULL),
    cut_seconds  double precision NOT NULL CHECK (cut_seconds > 0),
    report       jsonb
);
CREATE INDEX drills_ended ON filaviva.drills (ended_at DESC) WHERE ended_at IS NOT NULL;
