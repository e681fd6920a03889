-- To leave out of the age of dead letters what somebody wants to hear nothing of.
CREATE INDEX failure_groups_snoozed ON filaviva.failure_groups (snoozed_until) INCLUDE (id) WHERE state = 'snoozed';
