-- Returns the owner of a schema, and whether the current user has made it for a reader; no row without such
-- a schema.
-- $1 schema, $2 comment of a schema that was made for the reader. Locks nothing. Indexes of the catalogue.
select pg_catalog.pg_get_userbyid(n.nspowner)::text,
       pg_catalog.pg_has_role(n.nspowner, 'usage')
       and coalesce(pg_catalog.obj_description(n.oid, 'pg_namespace') = $2::text, false)
  from pg_catalog.pg_namespace n
 where n.nspname = $1::text
