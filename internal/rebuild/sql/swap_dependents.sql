-- Returns the statements that define the views and functions again that name tables, as they are now.
-- $1 schema, $2 tables: a text array literal. search_path is empty, so that all names have their schema.
-- Locks nothing. Indexes of the catalogue.
with used as (
  select pg_catalog.to_regclass(pg_catalog.format('%I.%I', $1::text, t.name))::oid as oid
    from pg_catalog.unnest($2::text::text[]) t(name)
)
select distinct pg_catalog.format('create or replace view %I.%I%s as %s', n.nspname, v.relname,
                         coalesce(' with (' || pg_catalog.array_to_string(v.reloptions, ', ') || ')', ''),
                         pg_catalog.pg_get_viewdef(v.oid))
  from used u
  join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.refobjid = u.oid
       and d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
  join pg_catalog.pg_rewrite r on r.oid = d.objid
  join pg_catalog.pg_class v on v.oid = r.ev_class and v.relkind = 'v'
  join pg_catalog.pg_namespace n on n.oid = v.relnamespace
 union all
select distinct pg_catalog.pg_get_functiondef(p.oid)
  from used u
  join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass and d.refobjid = u.oid
       and d.classid = 'pg_catalog.pg_proc'::pg_catalog.regclass
  join pg_catalog.pg_proc p on p.oid = d.objid
