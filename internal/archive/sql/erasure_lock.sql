-- Waits for erasures, and for runs of the archive that are storing tasks. Keeps them out until the transaction ends.
select pg_advisory_xact_lock(hashtext('taskledger/erase'))
