-- Counts an enqueue that was rejected because too many tasks of its kind wait. A rollback does not undo it.
-- Locks nothing.
select nextval('taskledger.rejected')
