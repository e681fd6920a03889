-- What submits jobs by the calendar. A firing is one commit: its job and the next time of its row.
CREATE TABLE filaviva.schedules (
    id             uuid PRIMARY KEY,
    tenant         text NOT NULL,
    name           text NOT NULL,
    cron           text NOT NULL,              -- five fields, in `time_zone`
    time_zone      text NOT NULL,
    missed         text NOT NULL CHECK (missed IN ('skip', 'once', 'all')),
    enabled        boolean NOT NULL,
    type           text NOT NULL,
    version        integer NOT NULL,
    data           jsonb NOT NULL,
    priority       smallint NOT NULL,
    max_attempts   integer,                    -- null: the handler's policy when it fires
    labels         jsonb NOT NULL,
    subject        text,
    callback_url   text,
    fingerprint    bytea NOT NULL,             -- of the request that made it
    next_fire_at   timestamptz,                -- null: it will not fire (`error` says why)
    last_fired_at  timestamptz,
    last_job_id    uuid,
    fired          bigint NOT NULL DEFAULT 0,
    error          text,
    submitted_by     text NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (tenant, name)
);
CREATE INDEX schedules_newest ON filaviva.schedules (tenant, id);
CREATE INDEX schedules_due ON filaviva.schedules (next_fire_at) WHERE enabled;
