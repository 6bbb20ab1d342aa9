-- Returns the sessions that hold locks on tables, without waiting sessions: process id, login and program.
-- $1 schema, $2 tables: a text array literal. Locks nothing.
select distinct format('pid %s, login %s%s', l.pid, coalesce(a.usename, '?'),
                       coalesce(', ' || nullif(a.application_name, ''), ''))
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  join pg_catalog.pg_locks l on l.relation = c.oid and l.granted and l.pid <> pg_backend_pid()
       and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
  left join pg_catalog.pg_stat_activity a on a.pid = l.pid
 where n.nspname = $1::text and c.relname::text = any ($2::text::text[])
 order by 1
 limit 10
