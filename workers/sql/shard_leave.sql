-- Gives up shards that a worker has.
-- $1 worker, $2 kind, $3 shards ('' for all that it has of any kind, whatever the kind).
-- Locks these rows. Index: primary key; the small table is read where all are given up.
delete from taskledger.shard_owner o
 where o.worker = $1::text and ($3::text = '' or o.kind = $2::text and o.shards = $3::text)
