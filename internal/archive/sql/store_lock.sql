-- Waits for the call that stores tasks in the archive at place $1, and keeps others out until the transaction ends.
select pg_advisory_xact_lock(hashtext('taskledger/archive ' || $1::text))
