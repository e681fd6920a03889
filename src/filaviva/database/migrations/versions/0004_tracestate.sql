-- What other tracing systems had added to the request's traceparent.
ALTER TABLE filaviva.jobs ADD COLUMN tracestate text;

-- As before, and who is called back sees it too.
CREATE OR REPLACE FUNCTION filaviva.call_back() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    callback uuid := filaviva.uuid7();
    named text := format('callback:%s:%s:%s', NEW.id, NEW.epoch, NEW.state);
BEGIN
    INSERT INTO filaviva.jobs (id, tenant, type, version, queue, max_attempts, payload,
        fingerprint, idempotency_key, correlation_id, traceparent, tracestate,
        labels)
    VALUES (callback, NEW.tenant, 'filaviva.callback', 1, 'callbacks', 16,
        jsonb_strip_nulls(jsonb_build_object('jobId', NEW.id, 'type', NEW.type,
            'version', NEW.version, 'status', NEW.state,
            'finishedAt', coalesce(NEW.finished_at, clock_timestamp()),
            'attempts', NEW.attempt, 'costUsd', NEW.cost_usd::text,
            'errorClass', CASE NEW.state WHEN 'failed' THEN NEW.error->>'class' END,
            'errorCode', CASE NEW.state WHEN 'failed' THEN NEW.error->>'code' END)),
        sha256(convert_to(named, 'UTF8')), named, NEW.correlation_id, NEW.traceparent,
        NEW.tracestate, jsonb_build_object('job', NEW.id))
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO filaviva.job_events (job_id, kind, data)
    VALUES (callback, 'state', '{"status": "queued", "reason": "callback"}');
    INSERT INTO filaviva.turns (queue, tenant, priority, job_id, epoch)
    SELECT 'callbacks', NEW.tenant, 4, callback, 1
    FROM filaviva.turn_keeper WHERE until > clock_timestamp();
    IF FOUND THEN
        RETURN NULL;
    END IF;
    INSERT INTO filaviva.outbox (exchange, routing_key, message_id, type, data, job_id, epoch,
        correlation_id, traceparent, priority, locked_until)
    VALUES ('filaviva.jobs', 'callbacks', callback || ':1:1', 'filaviva.wakeup.v1',
        jsonb_build_object('jobId', callback, 'epoch', 1, 'type', 'filaviva.callback',
            'version', 1, 'queue', 'callbacks'),
        callback, 1, NEW.correlation_id, NEW.traceparent, 4, clock_timestamp());
    RETURN NULL;
END $$;
