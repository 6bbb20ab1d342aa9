-- Returns the statements that drop a schema in which tables were built; none if it does not exist.
-- $1 schema. Locks nothing.
select format('drop schema %I cascade', n.nspname)
  from pg_catalog.pg_namespace n
 where n.nspname = $1::text
