-- The database in which transaction IDs have their meaning: its origin, and its incarnation, '' if it has none.
-- Locks nothing.
select taskledger.origin(), coalesce(taskledger.incarnation(), '')
