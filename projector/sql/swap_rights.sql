-- Returns the statements that give new tables, once they are in place, the owner and the rights of the old ones.
-- $1 schema, $2 tables: a text array literal; $3 schema of the new tables. Columns that are gone are left out.
-- Locks nothing.
with pair as (
  select pg_catalog.format('%I.%I', $1::text, t.name) as name, o.oid as old, n.oid as new, o.relowner,
         n.relowner as new_owner, o.relacl, o.relkind
    from pg_catalog.unnest($2::text::text[]) t(name)
    join pg_catalog.pg_class o on o.oid = pg_catalog.to_regclass(pg_catalog.format('%I.%I', $1::text, t.name))
    join pg_catalog.pg_class n on n.oid = pg_catalog.to_regclass(pg_catalog.format('%I.%I', $3::text, t.name))
), granted as (
  select p.name, p.relowner, a.grantee, a.privilege_type, a.is_grantable, null::name as attname
    from pair p
   cross join lateral pg_catalog.aclexplode(p.relacl) a
   union all
  select p.name, p.relowner, a.grantee, a.privilege_type, a.is_grantable, c.attname
    from pair p
    join pg_catalog.pg_attribute c on c.attrelid = p.old and c.attnum > 0 and not c.attisdropped
   cross join lateral pg_catalog.aclexplode(c.attacl) a
   where exists (
     select from pg_catalog.pg_attribute n
      where n.attrelid = p.new and n.attname = c.attname and not n.attisdropped)
)
select pg_catalog.format('alter table %s owner to %I', p.name, pg_catalog.pg_get_userbyid(p.relowner))
  from pair p
 where p.relowner <> p.new_owner
 union all
select pg_catalog.format('grant %s%s on %s to %s%s', g.privilege_type,
                         coalesce(' (' || pg_catalog.quote_ident(g.attname) || ')', ''), g.name,
                         case g.grantee when 0 then 'public'
                                        else pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(g.grantee)) end,
                         case when g.is_grantable then ' with grant option' else '' end)
  from granted g
 where g.grantee <> g.relowner
