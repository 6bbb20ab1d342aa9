-- Locks the set of schedules against other calls of Apply until this transaction ends, and waits for one that runs.
-- It does not block runners, nor changes of one schedule. No parameters. Takes an advisory lock.
select pg_advisory_xact_lock(hashtextextended('taskledger.schedule', 0))
