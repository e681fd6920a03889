ALTER TABLE filaviva.jobs ADD COLUMN callback_url text;

-- As the services make them: 48 bits of milliseconds, the version, and chance.
CREATE FUNCTION filaviva.uuid7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
    SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING
        substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
        FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$;

-- A job whose submitter wants to be told has ended: the job that tells it shares the commit of the
-- final state, whoever writes that. One row a job and epoch; the relay's sweep takes it from there.
CREATE FUNCTION filaviva.call_back() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    callback uuid := filaviva.uuid7();
    named text := format('callback:%s:%s:%s', NEW.id, NEW.epoch, NEW.state);
BEGIN
    INSERT INTO filaviva.jobs (id, tenant, type, version, queue, max_attempts, payload,
        fingerprint, idempotency_key, correlation_id, traceparent, labels)
    VALUES (callback, NEW.tenant, 'filaviva.callback', 1, 'callbacks', 16,
        jsonb_strip_nulls(jsonb_build_object('jobId', NEW.id, 'type', NEW.type,
            'version', NEW.version, 'status', NEW.state,
            'finishedAt', coalesce(NEW.finished_at, clock_timestamp()),
            'attempts', NEW.attempt, 'costUsd', NEW.cost_usd::text,
            'errorClass', CASE NEW.state WHEN 'failed' THEN NEW.error->>'class' END,
            'errorCode', CASE NEW.state WHEN 'failed' THEN NEW.error->>'code' END)),
        sha256(convert_to(named, 'UTF8')), named, NEW.correlation_id, NEW.traceparent,
        jsonb_build_object('job', NEW.id))
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO filaviva.job_events (job_id, kind, data)
    VALUES (callback, 'state', '{"status": "queued", "reason": "callback"}');
    INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data, job_id, epoch,
        correlation_id, traceparent, priority, locked_until)
    VALUES ('filaviva.jobs', 'callbacks', callback || ':1:1', 'filaviva.wakeup.v1',
        jsonb_build_object('jobId', callback, 'epoch', 1, 'type', 'filaviva.callback',
            'version', 1, 'queue', 'callbacks'),
        callback, 1, NEW.correlation_id, NEW.traceparent, 4, clock_timestamp());
    RETURN NULL;
END $$;

CREATE TRIGGER jobs_call_back AFTER UPDATE OF state ON filaviva.jobs FOR EACH ROW
    WHEN (NEW.callback_url IS NOT NULL AND NEW.state IN ('succeeded', 'failed', 'canceled')
        AND OLD.state IS DISTINCT FROM NEW.state)
    EXECUTE FUNCTION filaviva.call_back();
