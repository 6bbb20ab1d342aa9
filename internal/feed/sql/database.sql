-- The database in which transaction IDs have their meaning: its origin, its incarnation, '' if it has none, and its
-- timeline, 0 on a standby. Locks nothing.
select taskledger_internal.origin(), coalesce(taskledger_internal.incarnation(), ''),
       coalesce(taskledger_internal.timeline(), 0)
