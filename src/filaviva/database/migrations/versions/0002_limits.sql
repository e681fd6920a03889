-- What every worker and producer keeps in memory is told to them when it changes.
CREATE FUNCTION filaviva.tell_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(TG_ARGV[0], '');
    RETURN NULL;
END $$;

CREATE TRIGGER api_keys_changed AFTER UPDATE OF types, expires_at, revoked_at OR DELETE
    ON filaviva.api_keys FOR EACH STATEMENT EXECUTE FUNCTION filaviva.tell_change('filaviva_keys');

-- What a tenant, or each of its end users, may have. A figure that is not set here comes from the row
-- of every tenant ('*'), and without one there is no limit.
CREATE TABLE filaviva.limits (
    tenant      text NOT NULL,                 -- '*': every tenant
    subject     text NOT NULL DEFAULT '',      -- '': the tenant as a whole; '*': each of its subjects
    per_minute  double precision CHECK (per_minute > 0),
    burst       integer CHECK (burst > 0),
    queued      integer CHECK (queued >= 0),
    running     integer CHECK (running > 0),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, subject)
);

CREATE TRIGGER limits_changed AFTER INSERT OR UPDATE OR DELETE
    ON filaviva.limits FOR EACH STATEMENT EXECUTE FUNCTION filaviva.tell_change('filaviva_limits');

-- One row per limited tenant (tenant:<id>) and subject (subject:<tenant>/<id>): who holds its lock
-- counts alone. Submissions and runs have their own rows, so that neither waits for the other.
CREATE TABLE filaviva.submission_keys (
    key        text PRIMARY KEY,
    tokens     double precision NOT NULL,
    filled_at  timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE filaviva.running_keys (
    key       text PRIMARY KEY,
    released  uuid[] NOT NULL DEFAULT '{}',    -- jobs that were released and are not claimed yet,
    epochs    bigint[] NOT NULL DEFAULT '{}'   -- and the epoch of each
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE INDEX jobs_limited ON filaviva.jobs (tenant, coalesce(subject, ''), priority DESC, id)
    WHERE parked_reason = 'limit';
CREATE INDEX jobs_waiting ON filaviva.jobs (tenant, subject) WHERE state = 'queued';

-- Jobs that wait for their turn: their wake-up is not issued yet.
CREATE TABLE filaviva.turns (
    queue     text NOT NULL,
    tenant    text NOT NULL,
    priority  smallint NOT NULL,
    job_id    uuid NOT NULL,
    epoch     bigint NOT NULL,
    PRIMARY KEY (queue, tenant, priority, job_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX turns_of_job ON filaviva.turns (job_id);

-- Which process gives the turns; while nobody does, nothing is made to wait for one.
CREATE TABLE filaviva.turn_keeper (
    one    boolean PRIMARY KEY DEFAULT true CHECK (one),
    id     text NOT NULL,
    until  timestamptz NOT NULL
) WITH (fillfactor = 50);
