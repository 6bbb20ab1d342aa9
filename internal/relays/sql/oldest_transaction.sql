-- Selects the oldest open transaction of the cluster with an xid or a snapshot, including prepared transactions and
-- excluding this one. Only members of pg_read_all_stats see sessions of other users. Locks nothing.
select t.pid, t.prepared, t.application, t.username, t.database, t.state,
       floor(extract(epoch from clock_timestamp() - t.since) * 1000)::bigint
  from (
   select a.pid, '' as prepared, coalesce(a.application_name, '') as application,
          coalesce(a.usename::text, '') as username, coalesce(a.datname::text, '') as database,
          coalesce(a.state, '') as state, a.xact_start as since
     from pg_stat_activity a
    where a.xact_start is not null and a.pid <> pg_backend_pid()
      and a.backend_type = 'client backend' and (a.backend_xid is not null or a.backend_xmin is not null)
    union all
   select 0, p.gid, '', p.owner::text, p.database::text, 'prepared', p.prepared
     from pg_prepared_xacts p) t
 order by t.since
 limit 1
