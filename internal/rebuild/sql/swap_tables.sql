-- Returns the tables of a schema, without their partitions' own.
-- $1 schema. Locks nothing.
select c.relname::text
  from pg_catalog.pg_class c
 where c.relnamespace = pg_catalog.to_regnamespace(pg_catalog.quote_ident($1::text)) and c.relkind in ('r', 'p')
 order by c.relname
