-- Returns the name of one table that is not a system table and has, or had, rows.
-- No parameters. Takes no locks.
select n.nspname || '.' || c.relname
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
 where c.relkind in ('r', 'p')
   and n.nspname not in ('pg_catalog', 'information_schema')
   and n.nspname not like 'pg_toast%'
   and (c.relkind = 'p' or pg_relation_size(c.oid) > 0)
 order by 1
 limit 1
