-- Selects the oldest transaction, open or prepared, that has appended events and began more than $1 ms ago. Only
-- members of pg_read_all_stats see the age of other users' sessions.
-- $1 least age in ms. Returns no row, or pid (0: prepared), the name of a prepared transaction, user, and age in ms.
-- Locks nothing.
select t.pid, t.prepared, t.username, floor(extract(epoch from clock_timestamp() - t.since) * 1000)::bigint
  from (
   select a.pid, '' as prepared, coalesce(a.usename::text, '') as username, a.xact_start as since
     from pg_catalog.pg_locks l
     join pg_catalog.pg_stat_activity a on a.pid = l.pid
    where l.relation = 'taskledger.event'::regclass and l.mode = 'RowExclusiveLock' and l.granted
      and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
      and a.pid <> pg_backend_pid()
    union all
   select 0, p.gid, p.owner::text, p.prepared
     from pg_catalog.pg_prepared_xacts p
    where p.database = current_database()) t
 where t.since < clock_timestamp() - $1::bigint * interval '1 millisecond'
 order by t.since
 limit 1
