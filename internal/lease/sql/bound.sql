-- Has leases that were taken before the clock was set back end after one more term.
-- Locks such rows. Reads the whole small table.
select taskledger.bound_leases()
