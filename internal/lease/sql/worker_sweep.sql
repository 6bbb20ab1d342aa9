-- Removes leases that ended a day ago. A missing lease means the same as an ended one; the day is for operators.
-- Locks the rows it removes, and skips rows that another transaction has locked. Reads the whole small table.
select taskledger_internal.sweep_leases()
