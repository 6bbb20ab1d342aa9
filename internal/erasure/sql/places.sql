-- The archives to which runs may have stored tasks, and whether they have. Reads archive_batch, a row for some hundred
-- tasks. Locks nothing.
select p.place, p.has_volumes from taskledger_internal.archive_places() p
