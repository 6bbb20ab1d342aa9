-- The owners of the shards of some kinds, and whether they are alive.
-- $1 kinds (text array literal). Locks nothing. Index: primary key.
select o.kind, o.shards, o.worker, exists (select from taskledger.shards_alive(o.worker))
  from taskledger.shard_owner o
 where o.kind = any ($1::text::text[])
