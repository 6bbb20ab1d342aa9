-- Locks a schedule against firings and changes until this transaction ends.
-- $1 name. Locks that row, and waits for a runner that has locked it. Index: primary key.
select s.name from taskledger.schedule s where s.name = $1::text for update
