-- Serializes workers that take their first lease, so that of two workers that exclude each other the later one
-- sees the other. Locks an advisory lock until the end of the transaction.
select pg_advisory_xact_lock(hashtextextended('taskledger.worker', 0))
