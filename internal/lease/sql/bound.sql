-- Has leases that were taken before the clock was set back end after one more term.
-- Locks such rows, and skips those that another transaction has locked. Reads the whole small table.
select taskledger.bound_leases()
