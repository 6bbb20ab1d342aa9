-- Deletes a schedule. Its tasks stay, so that none of its firings can happen again.
-- $1 name. Locks that row. Index: primary key.
delete from taskledger.schedule s where s.name = $1::text
