-- Selects the oldest transaction, open or prepared, that began more than $1 ms ago and holds what starts need: permits,
-- tokens, limits, or the lock of the turns of lines. Only members of pg_read_all_stats see the age of other users'
-- sessions.
-- $1 least age in ms. Returns no row, or pid (0: prepared), the name of a prepared transaction, user, age in ms, and
-- the name of the table. Locks nothing.
select t.pid, t.prepared, t.username, floor(extract(epoch from clock_timestamp() - t.since) * 1000)::bigint, t.held
  from (
   select coalesce(a.pid, 0) as pid, coalesce(p.gid, '') as prepared,
          coalesce(a.usename::text, p.owner::text, '') as username, coalesce(a.xact_start, p.prepared) as since,
          c.relname::text as held
     from pg_catalog.pg_locks l
     join pg_catalog.pg_class c on c.oid = l.relation and c.relnamespace = 'taskledger'::regnamespace
     left join pg_catalog.pg_stat_activity a on a.pid = l.pid
     left join pg_catalog.pg_locks x -- of the id of a prepared transaction
       on l.pid is null and x.pid is null and x.locktype = 'transactionid'
          and x.virtualtransaction = l.virtualtransaction
     left join pg_catalog.pg_prepared_xacts p on p.transaction = x.transactionid
    where l.granted and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
      and case c.relname
            when 'mutex' then l.mode = 'ShareRowExclusiveLock'
            when 'permit' then l.mode = 'RowExclusiveLock'
            when 'start_token' then l.mode = 'RowExclusiveLock'
            when 'start_limit' then l.mode = 'RowExclusiveLock'
            else false end) t
 where t.since < clock_timestamp() - $1::bigint * interval '1 millisecond'
 order by t.since, t.held <> 'start_limit', t.held
 limit 1
