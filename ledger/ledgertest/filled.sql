-- The tables that may have rows, or statistics of rows that they had.
select coalesce(array_agg(c.oid::regclass::text order by c.oid), '{}')
  from pg_class c
  join pg_namespace n on n.oid = c.relnamespace
 where c.relkind = 'r' and n.nspname <> 'information_schema' and n.nspname !~ '^pg_'
   and (pg_relation_size(c.oid) > 0 or c.reltuples >= 0)
