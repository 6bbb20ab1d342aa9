-- Returns the statements that vacuum and analyze new tables.
-- $1 schema. Locks nothing.
select format('vacuum (analyze) %I.%I', $1::text, c.relname)
  from pg_catalog.pg_class c
 where c.relnamespace = to_regnamespace(quote_ident($1::text)) and c.relkind = 'r'
