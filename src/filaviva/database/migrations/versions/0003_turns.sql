-- Jobs whose time has not come, of which more come at once than their queue can do with: they have no
-- wake-up yet, and wait for their turn in `turns` once they are due.
CREATE TABLE filaviva.upcoming (
    job_id  uuid PRIMARY KEY,
    epoch   bigint NOT NULL,
    due_at  timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX upcoming_due ON filaviva.upcoming (due_at);
