-- An event is only ever looked up by its job: one index less to write for each of them.
ALTER TABLE filaviva.job_events DROP CONSTRAINT job_events_pkey, ADD PRIMARY KEY (job_id, id);

DROP INDEX filaviva.job_events_of_job;
