-- Waits for erasures, and keeps them out until the transaction ends.
select pg_advisory_xact_lock_shared(hashtext('taskledger/erase'))
