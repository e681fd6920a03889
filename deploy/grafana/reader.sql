-- The role of Grafana's PostgreSQL data source: it may read what dashboards show, and neither
-- payloads nor results, prompts, errors' details, keys or hashes. Run it as the owner, after setup:
--   psql "$FILAVIVA_POSTGRES__URL" -v password="'…'" -f deploy/grafana/reader.sql
SELECT 'CREATE ROLE filaviva_reader LOGIN'
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'filaviva_reader') \gexec
ALTER ROLE filaviva_reader PASSWORD :password;
ALTER ROLE filaviva_reader SET statement_timeout = '15s';
ALTER ROLE filaviva_reader SET default_transaction_read_only = on;
GRANT USAGE ON SCHEMA filaviva TO filaviva_reader;
GRANT SELECT (id, tenant, subject, type, version, queue, state, attempt, max_attempts, priority,
    parent_id, not_before, deadline, parked_reason, cost_usd, created_at, queued_at, started_at,
    finished_at, cancel_requested_at) ON filaviva.jobs TO filaviva_reader;
GRANT SELECT (job_id, number, worker, started_at, finished_at, outcome, error_class, error_code,
    pause_seconds, step, cost_usd) ON filaviva.attempts TO filaviva_reader;
GRANT SELECT (id, job_id, tenant, type, version, reason, status, group_id, attempts, cost_usd,
    created_at, closed_at) ON filaviva.dead_letters TO filaviva_reader;
GRANT SELECT ON filaviva.failure_groups, filaviva.limits, filaviva.turns, filaviva.workers
    TO filaviva_reader;
GRANT SELECT (id, tenant, author, reason, state, created_at, finished_at)
    ON filaviva.replays TO filaviva_reader;
GRANT SELECT (replay_id, dead_letter_id, state, estimated_usd, outcome, cost_usd, closed_at)
    ON filaviva.replay_letters TO filaviva_reader;
