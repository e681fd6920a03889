-- One table per duty. Only the database's clock is stored; money is numeric; states are text so that
-- a new one is an expand/contract migration and not a type change.

CREATE TABLE filaviva.api_keys (
    id            text PRIMARY KEY,
    tenant        text NOT NULL,
    name          text NOT NULL,
    hash          bytea NOT NULL,
    scopes        text[] NOT NULL,
    types         text[],
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_used_at  timestamptz,
    expires_at    timestamptz,
    revoked_at    timestamptz
);

CREATE TABLE filaviva.contracts (
    type           text NOT NULL,
    version        integer NOT NULL CHECK (version > 0),
    app            text NOT NULL,
    queue          text,                       -- null: an event without a handler
    schema         jsonb NOT NULL,             -- closed: what the edge accepts
    result_schema  jsonb,
    policy         jsonb NOT NULL DEFAULT '{}',
    deprecated_at  timestamptz,
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (type, version)
);

-- Rows are updated in place many times in a short life: room on the page lets the new version stay
-- beside the old one, and vacuum comes by the number of changed rows, not by a share of a growing table.
CREATE TABLE filaviva.jobs (
    id                uuid PRIMARY KEY,
    tenant            text NOT NULL,
    type              text NOT NULL,
    version           integer NOT NULL,
    queue             text NOT NULL,
    state             text NOT NULL DEFAULT 'queued' CHECK (state IN
                          ('queued', 'running', 'cancel_requested', 'succeeded', 'failed', 'canceled')),
    epoch             bigint NOT NULL DEFAULT 1,
    issue             integer NOT NULL DEFAULT 1,   -- wake-ups issued for this epoch
    reissued_at       timestamptz,
    attempt           integer NOT NULL DEFAULT 0,   -- number of the last attempt; never reset
    failures          integer NOT NULL DEFAULT 0,   -- counted attempts of the present allowance
    losses            integer NOT NULL DEFAULT 0,   -- lost attempts of the present allowance
    delivery_limits   integer NOT NULL DEFAULT 0,   -- times the broker gave up on this epoch's allowance
    max_attempts      integer NOT NULL CHECK (max_attempts > 0),
    priority          smallint NOT NULL DEFAULT 4,
    payload           jsonb NOT NULL,
    revision          integer NOT NULL DEFAULT 1,
    fingerprint       bytea NOT NULL,
    idempotency_key   text NOT NULL,
    parent_id         uuid,
    item_index        integer,
    not_before        timestamptz,
    deadline          timestamptz,
    fence             bigint NOT NULL DEFAULT 0,
    lease_owner       text,
    lease_expires_at  timestamptz,
    claim_id          uuid,
    progress          jsonb,
    result            jsonb,
    error             jsonb,
    cost_usd          numeric NOT NULL DEFAULT 0,
    correlation_id    text NOT NULL,
    traceparent       text,
    labels            jsonb NOT NULL DEFAULT '{}',
    submitted_by      text,
    subject           text,
    parked_reason     text,
    created_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    queued_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at        timestamptz,
    finished_at       timestamptz,
    updated_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (tenant, idempotency_key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
        autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000);

CREATE INDEX jobs_newest ON filaviva.jobs (tenant, id);
CREATE INDEX jobs_failed ON filaviva.jobs (tenant, id) WHERE state = 'failed';
CREATE INDEX jobs_due ON filaviva.jobs (queue, greatest(queued_at, not_before)) WHERE state = 'queued';
CREATE INDEX jobs_leased ON filaviva.jobs (lease_expires_at) WHERE state IN ('running', 'cancel_requested');
CREATE INDEX jobs_expiring ON filaviva.jobs (deadline) WHERE state = 'queued' AND deadline IS NOT NULL;
CREATE INDEX jobs_parked ON filaviva.jobs (parked_reason, id) WHERE parked_reason IS NOT NULL;
CREATE INDEX jobs_items ON filaviva.jobs (parent_id, item_index) WHERE parent_id IS NOT NULL;
CREATE INDEX jobs_labels ON filaviva.jobs USING gin (labels jsonb_path_ops) WHERE labels <> '{}';

-- A backstop only: every statement filters by state, so this fires for a bug, never for a race.
CREATE FUNCTION filaviva.refuse_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'job % must not go from % to %', OLD.id, OLD.state, NEW.state
        USING ERRCODE = 'check_violation';
END $$;

CREATE TRIGGER jobs_transition BEFORE UPDATE OF state ON filaviva.jobs FOR EACH ROW
    WHEN (OLD.state IS DISTINCT FROM NEW.state AND (OLD.state, NEW.state) NOT IN (
        ('queued', 'running'), ('queued', 'canceled'), ('queued', 'failed'), ('queued', 'succeeded'),
        ('running', 'succeeded'), ('running', 'failed'), ('running', 'queued'),
        ('running', 'cancel_requested'), ('running', 'canceled'),
        ('cancel_requested', 'canceled'), ('cancel_requested', 'succeeded'),
        ('failed', 'queued'), ('canceled', 'queued'), ('failed', 'running'), ('canceled', 'running')))
    EXECUTE FUNCTION filaviva.refuse_transition();

-- The timeline of every job; the identity is the resume point of its stream.
CREATE TABLE filaviva.job_events (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id  uuid NOT NULL,
    kind    text NOT NULL,
    data    jsonb NOT NULL DEFAULT '{}',
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX job_events_of_job ON filaviva.job_events (job_id, id);

CREATE TABLE filaviva.attempts (
    job_id         uuid NOT NULL,
    number         integer NOT NULL,
    fence          bigint NOT NULL,
    worker         text NOT NULL,
    started_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at    timestamptz,
    outcome        text CHECK (outcome IN
                       ('succeeded', 'retry', 'failed', 'canceled', 'lost', 'released')),
    error_class    text,
    error_code     text,
    error_message  text,
    error_frames   text[],
    retry_after    double precision,           -- seconds, as the other side asked
    pause_seconds  double precision,           -- as the scheduler decided
    step           text,                       -- where it failed
    cost_usd       numeric NOT NULL DEFAULT 0,
    PRIMARY KEY (job_id, number)
) WITH (fillfactor = 80);

CREATE TABLE filaviva.steps (
    job_id       uuid NOT NULL,
    revision     integer NOT NULL,
    name         text NOT NULL,
    attempt      integer NOT NULL,
    state        text NOT NULL CHECK (state IN ('running', 'succeeded', 'failed')),
    tool         text,
    input        jsonb,
    input_hash   bytea,
    output       jsonb,
    cost_usd     numeric NOT NULL DEFAULT 0,
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at  timestamptz,
    PRIMARY KEY (job_id, revision, name)
);

CREATE TABLE filaviva.llm_calls (
    id                  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    job_id              uuid NOT NULL,
    attempt             integer NOT NULL,
    step                text,
    provider            text NOT NULL,
    model               text NOT NULL,
    input_tokens        bigint NOT NULL DEFAULT 0,
    output_tokens       bigint NOT NULL DEFAULT 0,
    cache_read_tokens   bigint NOT NULL DEFAULT 0,
    cache_write_tokens  bigint NOT NULL DEFAULT 0,
    cost_usd            numeric,                -- null: no price known for this model
    price_source        text,
    at                  timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX llm_calls_of_job ON filaviva.llm_calls (job_id, id);

-- Shared by all consumers: each message once per consumer.
CREATE TABLE filaviva.inbox (
    consumer     text NOT NULL,
    message_id   text NOT NULL,
    body_hash    bytea,
    received_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    duplicates   integer NOT NULL DEFAULT 0,
    PRIMARY KEY (consumer, message_id)
);

-- Rows leave with the caller's transaction and are deleted once the broker has routed and confirmed them.
-- A row is born locked by its committer, who publishes it at once; the sweep takes what a crash left.
CREATE TABLE filaviva.outbox (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    exchange        text NOT NULL,
    routing_key     text NOT NULL,
    message_id      text NOT NULL,
    event_id        text,                      -- the CloudEvents id where it differs (a replayed event)
    type            text NOT NULL,             -- CloudEvents type, with its major version
    data            jsonb NOT NULL,
    job_id          uuid,
    epoch           bigint,
    correlation_id  text,
    traceparent     text,
    priority        smallint,
    not_before      timestamptz,               -- through the delay cascade until then
    mandatory       boolean NOT NULL DEFAULT true,
    locked_until    timestamptz NOT NULL DEFAULT clock_timestamp() + interval '10 seconds',
    tries           integer NOT NULL DEFAULT 0,
    parked_at       timestamptz,               -- the offender of a batch: tried each minute, never deleted
    error           text,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK (octet_length(data::text) <= 65536)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX outbox_due ON filaviva.outbox (locked_until);
CREATE INDEX outbox_of_job ON filaviva.outbox (job_id, epoch) WHERE job_id IS NOT NULL;

CREATE TABLE filaviva.failure_groups (
    id             uuid PRIMARY KEY,
    fingerprint    text NOT NULL UNIQUE,
    type           text,
    reason         text NOT NULL,
    error_class    text,
    error_code     text,
    message        text NOT NULL,              -- normalised
    frames         text[] NOT NULL DEFAULT '{}',
    state          text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'snoozed', 'resolved')),
    episode        integer NOT NULL DEFAULT 1,
    count          bigint NOT NULL DEFAULT 0,  -- in this episode
    cost_usd       numeric NOT NULL DEFAULT 0,
    first_seen_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    snoozed_until  timestamptz,
    resolved_at    timestamptz
);

CREATE TABLE filaviva.dead_letters (
    id            uuid PRIMARY KEY,
    job_id        uuid,
    epoch         bigint,
    tenant        text,
    type          text,
    version       integer,
    reason        text NOT NULL,
    status        text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'replaying', 'resolved', 'discarded')),
    group_id      uuid NOT NULL REFERENCES filaviva.failure_groups (id),
    error         jsonb NOT NULL DEFAULT '{}',
    attempts      integer NOT NULL DEFAULT 0,
    cost_usd      numeric NOT NULL DEFAULT 0,
    message_id    text,
    source_queue  text,
    exchange      text,
    routing_key   text,
    content_type  text,
    headers       jsonb NOT NULL DEFAULT '{}',
    raw           bytea,                       -- the message as it came, when it is no job of ours
    replay_id     uuid,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at     timestamptz,
    UNIQUE (job_id, epoch)
);
CREATE INDEX dead_letters_of_group ON filaviva.dead_letters (group_id, id);
CREATE INDEX dead_letters_newest ON filaviva.dead_letters (tenant, id);
-- Letters that may close by themselves: their job goes on.
CREATE INDEX dead_letters_moving ON filaviva.dead_letters (id) WHERE status = 'replaying'
    OR (status = 'open' AND reason IN ('unsupported_version', 'unroutable'));
CREATE INDEX dead_letters_open ON filaviva.dead_letters (tenant, id) WHERE status IN ('open', 'replaying');

CREATE TABLE filaviva.replays (
    id               uuid PRIMARY KEY,
    tenant           text,
    author           text NOT NULL,
    reason           text NOT NULL,
    scope            jsonb NOT NULL,
    patch            jsonb,
    rate_per_second  double precision,
    canary           integer,
    state            text NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'finished', 'stopped')),
    error            text,                     -- why it stopped by itself
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at      timestamptz
);
CREATE INDEX replays_running ON filaviva.replays (id) WHERE state = 'running';

CREATE TABLE filaviva.replay_letters (
    replay_id       uuid NOT NULL REFERENCES filaviva.replays (id),
    dead_letter_id  uuid NOT NULL REFERENCES filaviva.dead_letters (id),
    job_id          uuid,
    epoch           bigint,
    state           text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'refused', 'stopped')),
    cost_before     numeric NOT NULL DEFAULT 0,
    estimated_usd   numeric NOT NULL DEFAULT 0,   -- what its last attempt had cost
    outcome         text CHECK (outcome IN ('succeeded', 'failed', 'canceled')),
    cost_usd        numeric,                      -- what the replay really cost, once it ended
    error           text,
    sent_at         timestamptz,
    closed_at       timestamptz,
    PRIMARY KEY (replay_id, dead_letter_id)
);
CREATE INDEX replay_letters_running ON filaviva.replay_letters (dead_letter_id)
    WHERE state = 'sent' AND outcome IS NULL;
CREATE INDEX replay_letters_waiting ON filaviva.replay_letters (replay_id, dead_letter_id) WHERE state = 'waiting';

CREATE TABLE filaviva.notifications (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id     uuid REFERENCES filaviva.failure_groups (id),
    episode      integer,
    kind         text NOT NULL,
    channel      text NOT NULL,
    text         text,
    state        text NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'sent', 'dropped')),
    tries        integer NOT NULL DEFAULT 0,
    next_try_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    error        text,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent_at      timestamptz,
    UNIQUE (group_id, episode, kind, channel)
);
CREATE INDEX notifications_due ON filaviva.notifications (next_try_at) WHERE state = 'waiting';

-- The pace of each channel, shared by all processes that send to it.
CREATE TABLE filaviva.notification_channels (
    name      text PRIMARY KEY,
    open_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    failures  integer NOT NULL DEFAULT 0,      -- in a row
    error     text
);

-- Who is alive and what it can read; also how far each queue has come (for the reconciler).
CREATE TABLE filaviva.workers (
    id            text PRIMARY KEY,
    service       text NOT NULL,
    app           text,
    host          text NOT NULL,
    pid           integer NOT NULL,
    queues        text[] NOT NULL DEFAULT '{}',
    reads         jsonb NOT NULL DEFAULT '[]',  -- [{"type", "min", "max"}]
    slots         integer NOT NULL DEFAULT 0,
    busy          integer NOT NULL DEFAULT 0,
    watermarks    jsonb NOT NULL DEFAULT '{}',  -- {"queue/priority": greatest due_at claimed lately}
    started_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    last_seen_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    stopped_at    timestamptz
);

CREATE TABLE filaviva.audit_log (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    author  text NOT NULL,
    action  text NOT NULL,
    tenant  text,
    target  text,
    data    jsonb NOT NULL DEFAULT '{}'
);
