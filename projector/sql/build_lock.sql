-- Waits for transactions in which the archive removes tasks, and keeps others out until this one ends.
-- Locks a row of mutex.
select taskledger_internal.lock_archive()
