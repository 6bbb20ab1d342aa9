-- Selects the holder of the relay's lease, the server process of its connection (0: unknown), whether that process has
-- ended, and for how many milliseconds this holder has had a note.
-- Locks nothing. Index: primary key.
select l.holder, coalesce(l.backend, 0)::bigint,
       l.backend is not null and not exists (select from pg_catalog.pg_stat_activity a where a.pid = l.backend),
       case when l.detail->>'note' is null then 0 else greatest(0, floor(extract(epoch from
         clock_timestamp() - greatest(l.since, (l.detail->>'since')::timestamptz)) * 1000)) end::bigint
  from taskledger.lease l
 where l.name = 'relay'
