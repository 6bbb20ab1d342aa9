-- Gives up shards of a worker.
-- $1 worker, $2 kind, $3 shards ('': all shards of all kinds).
-- Locks these rows. Index: primary key; to give up all shards the small table is read.
delete from taskledger.shard_owner o
 where o.worker = $1::text and ($3::text = '' or o.kind = $2::text and o.shards = $3::text)
