-- Returns the statements that make tables like the built-in projection's, without indexes.
-- $1 schema, $2 tables: a text array literal. Locks nothing. Indexes of the catalogue.
select s.statement
  from (
   select 0 as i, format('create schema %I', $1::text) as statement
    union all
   select 1, format('create table %I.%I (like taskledger.%I including all excluding indexes)', $1::text, t.name, t.name)
     from unnest($2::text::text[]) t(name)
    union all
   select 2, format('alter table %I.%I set (%s)', $1::text, c.relname, array_to_string(c.reloptions, ', '))
     from unnest($2::text::text[]) t(name)
     join pg_catalog.pg_class c on c.oid = to_regclass(format('taskledger.%I', t.name))
    where c.reloptions is not null
    union all
   select 3, format('comment on table %I.%I is %L', $1::text, c.relname, obj_description(c.oid, 'pg_class'))
     from unnest($2::text::text[]) t(name)
     join pg_catalog.pg_class c on c.oid = to_regclass(format('taskledger.%I', t.name))) s
 order by s.i
