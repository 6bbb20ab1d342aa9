-- Shortens leases that were taken before the clock was set back: they end after one more term. Locks these rows, and
-- skips rows that another transaction has locked. Reads the whole small table.
select taskledger_internal.bound_leases()
