-- Returns the statements that drop the old tables, and the schemas of the build. Without cascade: another object that
-- depends on the old tables stops it.
-- $1 schema of the build, $2 old tables: a text array literal. Locks nothing.
select m.statement
  from (
   select 1 as i, pg_catalog.format('drop table %s',
            pg_catalog.string_agg(pg_catalog.format('%I.%I', $1::text || '_old', o.name), ', ')) as statement
     from pg_catalog.unnest($2::text::text[]) o(name)
    where pg_catalog.to_regclass(pg_catalog.format('%I.%I', $1::text || '_old', o.name)) is not null
   having count(*) > 0
    union all
   select 2, pg_catalog.format('drop schema %I', $1::text || '_old')
    union all
   select 3, pg_catalog.format('drop schema %I', $1::text)) m
 order by m.i
