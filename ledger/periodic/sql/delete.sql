-- Deletes a schedule. Its tasks stay, so that none of its firings can happen again.
-- $1 name. Locks that row. Index: primary key.
select true where taskledger_internal.unset('schedule', $1::text)
