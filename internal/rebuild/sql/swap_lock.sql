-- Returns the statement that locks the tables in use; none if none exists.
-- $1 schema, $2 tables: a text array literal. Locks nothing.
select pg_catalog.format('lock table %s in access exclusive mode',
                         pg_catalog.string_agg(pg_catalog.format('%I.%I', $1::text, t.name), ', ' order by t.name))
  from pg_catalog.unnest($2::text::text[]) t(name)
 where pg_catalog.to_regclass(pg_catalog.format('%I.%I', $1::text, t.name)) is not null
having count(*) > 0
