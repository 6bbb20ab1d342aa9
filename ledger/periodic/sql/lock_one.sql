-- Keeps a schedule from firing, and others from changing it, until this transaction ends.
-- $1 name. Locks that row; waits for a runner that has it in hand. Index: primary key.
select s.name from taskledger.schedule s where s.name = $1::text for update
