-- The live workers that divide the shards of each kind.
-- $1 kinds (text array literal). Locks nothing. Reads the whole small table.
select m.kind, m.worker from taskledger.shard_members m where m.kind = any ($1::text::text[])
