-- Locks the set of schedules against other calls of Apply until this transaction ends, and waits for a running call.
-- It does not block runners, nor changes of one schedule. No parameters. Locks a row. Index: primary key.
select from taskledger.mutex m where m.name = 'schedules' for update
