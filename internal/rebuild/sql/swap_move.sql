-- Returns the statements that move tables in use aside and new ones to their place. Indexes move with their tables.
-- $1 schema, $2 tables in use: a text array literal; $3 schema of the new tables, $4 new tables. Locks nothing.
select m.statement
  from (
   select 1 as i, pg_catalog.format('create schema %I', $3::text || '_old') as statement
    union all
   select 2, pg_catalog.format('alter table %I.%I set schema %I', $1::text, o.name, $3::text || '_old')
     from pg_catalog.unnest($2::text::text[]) o(name)
    where pg_catalog.to_regclass(pg_catalog.format('%I.%I', $1::text, o.name)) is not null
    union all
   select 3, pg_catalog.format('alter table %I.%I set schema %I', $3::text, n.name, $1::text)
     from pg_catalog.unnest($4::text::text[]) n(name)) m
 order by m.i
