-- Returns whether a run of the archive has begun in this database. Locks nothing.
select taskledger_internal.archived_until() > 0
