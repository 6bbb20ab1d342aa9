-- Reports whether a schema has tables.
-- $1 schema. Locks nothing.
select exists (
  select from pg_catalog.pg_class c
   where c.relnamespace = to_regnamespace(quote_ident($1::text)) and c.relkind in ('r', 'p'))
