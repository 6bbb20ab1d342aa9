-- Returns the statements that make a schema. DDL takes no parameters.
-- $1 name, $2 comment. Locks nothing.
select s.statement
  from (
   select 1 as i, pg_catalog.format('create schema %I', $1::text) as statement
    union all
   select 2, pg_catalog.format('comment on schema %I is %L', $1::text, $2::text)) s
 order by s.i
