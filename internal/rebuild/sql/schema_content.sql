-- Returns the content of a schema without indexes, sequences of columns and row types, and whether each is a table.
-- $1 schema. Locks nothing. Indexes of the catalogue.
select c.relname::text, c.relkind in ('r', 'p')
  from pg_catalog.pg_class c
 where c.relnamespace = to_regnamespace(quote_ident($1::text))
   and c.relkind not in ('i', 'I', 't')
   and not (c.relkind = 'S' and exists (
     select from pg_catalog.pg_depend d
      where d.classid = 'pg_catalog.pg_class'::regclass and d.objid = c.oid and d.deptype in ('a', 'i')))
 union all
select p.proname::text, false
  from pg_catalog.pg_proc p
 where p.pronamespace = to_regnamespace(quote_ident($1::text))
 union all
select y.typname::text, false
  from pg_catalog.pg_type y
 where y.typnamespace = to_regnamespace(quote_ident($1::text)) and y.typrelid = 0 and y.typelem = 0
 order by 1
