-- Returns the owner of a schema, whether that and the owner of all of its tables is the current user, and whether it
-- has tables; no row if there is no such schema.
-- $1 schema. Locks nothing. Indexes of the catalogue.
select pg_get_userbyid(n.nspowner)::text,
       pg_get_userbyid(n.nspowner) = current_user
       and not exists (
         select from pg_catalog.pg_class c
          where c.relnamespace = n.oid and c.relowner <> n.nspowner),
       exists (select from pg_catalog.pg_class c where c.relnamespace = n.oid and c.relkind in ('r', 'p'))
  from pg_catalog.pg_namespace n
 where n.nspname = $1::text
