-- Deletes a schedule. Its tasks stay, so that none of its firings can happen again.
-- $1 name. Locks that row. Index: primary key.
select r.name from taskledger_internal.remove_schedule($1::text) r(name)
