-- Returns the statements that give new tables, once they are in place, the owner and exactly the rights of the old
-- tables. A right that was revoked from an old table and that the DDL grants is not restored. Columns that no longer
-- exist are left out.
-- $1 schema, $2 tables: a text array literal; $3 schema of the new tables. Locks nothing.
with pair as (
  select pg_catalog.format('%I.%I', $1::text, t.name) as name, o.oid as old, n.oid as new, o.relowner,
         n.relowner as new_owner, o.relacl, n.relacl as new_acl
    from pg_catalog.unnest($2::text::text[]) t(name)
    join pg_catalog.pg_class o on o.oid = pg_catalog.to_regclass(pg_catalog.format('%I.%I', $1::text, t.name))
    join pg_catalog.pg_class n on n.oid = pg_catalog.to_regclass(pg_catalog.format('%I.%I', $3::text, t.name))
), revoked as (
  select p.name, case when a.grantee = p.new_owner then p.relowner else a.grantee end as grantee
    from pair p
   cross join lateral pg_catalog.aclexplode(
     case when p.relacl is not null or p.new_acl is not null
          then coalesce(p.new_acl, pg_catalog.acldefault('r', p.new_owner)) end) a
   union
  select p.name, a.grantee
    from pair p
    join pg_catalog.pg_attribute c on c.attrelid = p.new and c.attnum > 0
   cross join lateral pg_catalog.aclexplode(c.attacl) a
), granted as (
  select p.name, a.grantee, a.privilege_type, a.is_grantable, null::name as attname
    from pair p
   cross join lateral pg_catalog.aclexplode(
     case when p.relacl is not null or p.new_acl is not null
          then coalesce(p.relacl, pg_catalog.acldefault('r', p.relowner)) end) a
   union all
  select p.name, a.grantee, a.privilege_type, a.is_grantable, c.attname
    from pair p
    join pg_catalog.pg_attribute c on c.attrelid = p.old and c.attnum > 0 and not c.attisdropped
   cross join lateral pg_catalog.aclexplode(c.attacl) a
   where exists (
     select from pg_catalog.pg_attribute n
      where n.attrelid = p.new and n.attname = c.attname and not n.attisdropped)
), login as (
  select 0::pg_catalog.oid as oid, 'public' as name
   union all
  select r.oid, pg_catalog.quote_ident(r.rolname) from pg_catalog.pg_roles r
)
select s.statement
  from (
   select 1 as i, pg_catalog.format('alter table %s owner to %I', p.name, pg_catalog.pg_get_userbyid(p.relowner))
          as statement
     from pair p
    where p.relowner <> p.new_owner
    union all
   select 2, pg_catalog.format('revoke all on %s from %s', r.name, l.name)
     from revoked r
     join login l on l.oid = r.grantee
    union all
   select 3, pg_catalog.format('grant %s%s on %s to %s%s', g.privilege_type,
                               coalesce(' (' || pg_catalog.quote_ident(g.attname) || ')', ''), g.name, l.name,
                               case when g.is_grantable then ' with grant option' else '' end)
     from granted g
     join login l on l.oid = g.grantee) s
 order by s.i
