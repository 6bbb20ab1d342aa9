-- Lets one worker at a time take its first lease, so that of two that do not go together the later one
-- sees the other. Held to the end of the transaction.
select pg_advisory_xact_lock(hashtextextended('taskledger.worker', 0))
