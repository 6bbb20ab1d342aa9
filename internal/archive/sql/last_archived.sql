-- The last batch that the archive has removed, and the position up to which events belong to another database.
-- Locks nothing. Index: primary key.
select taskledger_internal.last_archived(), taskledger_internal.feed_floor()
