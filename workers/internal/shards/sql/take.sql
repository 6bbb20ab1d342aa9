-- Takes shards that have no owner, or one that is not alive.
-- $1 worker; $2 kinds and $3 their shards (text array literals of one length).
-- Returns what was taken. Locks these rows, in the order of the key. Index: primary key.
insert into taskledger.shard_owner as o (kind, shards, worker)
select w.kind, w.shards, $1::text
  from unnest($2::text::text[], $3::text::text[]) as w(kind, shards)
 order by w.kind collate "C", w.shards collate "C"
    on conflict (kind, shards) do update
   set worker = excluded.worker, since = clock_timestamp()
 where o.worker = excluded.worker
    or not exists (select from taskledger.shards_alive(o.worker))
returning kind, shards
