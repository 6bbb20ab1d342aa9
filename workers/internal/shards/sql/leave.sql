-- Gives up shards of a worker.
-- $1 worker, $2 kind, $3 shards ('': all shards of all kinds).
-- Locks these rows. Index: primary key; to give up all shards the small table is read.
select taskledger.leave_shards($1::text, $2::text, $3::text)
