-- Counts an enqueue that was rejected because too many tasks of its kind wait. A rollback does not undo it.
-- Locks nothing.
select taskledger_internal.count_rejection()
