-- Returns the statements that give new tables, once they are in place, what others have attached to the old ones: row
-- security and policies, triggers, rules, the replica identity, and publications. pg_get_expr and the like name all
-- objects with their schema, because search_path is empty.
-- $1 schema, $2 tables: a text array literal; $3 schema of the new tables; $4 1 if the DDL equals the old tables' DDL:
-- then objects that the DDL makes and others have changed or dropped stay so. Else the objects of the new DDL come
-- first.
-- Locks nothing. Indexes of the catalogue.
with pair as (
  select pg_catalog.format('%I.%I', $1::text, t.name) as name, o.oid as old, n.oid as new, o.relrowsecurity,
         o.relforcerowsecurity, n.relrowsecurity as new_security, n.relforcerowsecurity as new_forced, o.relreplident,
         n.relreplident as new_replident, $4::bigint = 1 as is_same
    from pg_catalog.unnest($2::text::text[]) t(name)
    join pg_catalog.pg_class o on o.oid = pg_catalog.to_regclass(pg_catalog.format('%I.%I', $1::text, t.name))
    join pg_catalog.pg_class n on n.oid = pg_catalog.to_regclass(pg_catalog.format('%I.%I', $3::text, t.name))
), attached as (
  select p.name, p.is_same, p.old, p.new, k.class, k.owner, k.object, k.definition, k.state
    from pair p
   cross join lateral (
     select 'policy' as class, y.polrelid as owner, y.polname as object, 'O'::"char" as state,
            pg_catalog.format('create policy %I on %s as %s for %s to %s%s%s', y.polname, p.name,
              case when y.polpermissive then 'permissive' else 'restrictive' end,
              case y.polcmd when 'r' then 'select' when 'a' then 'insert' when 'w' then 'update' when 'd' then 'delete'
                            else 'all' end,
              (select pg_catalog.string_agg(case r.oid when 0 then 'public' else
                        pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(r.oid)) end, ', ')
                 from pg_catalog.unnest(y.polroles) r(oid)),
              coalesce(' using (' || pg_catalog.pg_get_expr(y.polqual, y.polrelid) || ')', ''),
              coalesce(' with check (' || pg_catalog.pg_get_expr(y.polwithcheck, y.polrelid) || ')', ''))
            as definition
       from pg_catalog.pg_policy y
      where y.polrelid in (p.old, p.new)
      union all
     select 'trigger', g.tgrelid, g.tgname, g.tgenabled, pg_catalog.pg_get_triggerdef(g.oid)
       from pg_catalog.pg_trigger g
      where g.tgrelid in (p.old, p.new) and not g.tgisinternal
      union all
     select 'rule', w.ev_class, w.rulename, w.ev_enabled, pg_catalog.pg_get_ruledef(w.oid)
       from pg_catalog.pg_rewrite w
      where w.ev_class in (p.old, p.new) and w.rulename <> '_RETURN') k
), missing as (
  select a.*
    from attached a
   where a.owner = a.old
     and (a.is_same
          or not exists (
            select from attached n
             where n.new = a.new and n.owner = n.new and n.class = a.class and n.object = a.object))
), published as (
  select p.name, u.pubname, x.prattrs, t.rowfilter
    from pair p
    join pg_catalog.pg_publication_rel r on r.prrelid = p.old
    join pg_catalog.pg_publication u on u.oid = r.prpubid
    join pg_catalog.pg_class c on c.oid = p.old
    join pg_catalog.pg_namespace s on s.oid = c.relnamespace
    -- Columns and row filters exist from PostgreSQL 15 on.
   cross join lateral (
     select (
       select pg_catalog.string_agg(pg_catalog.quote_ident(b.attname), ', ' order by b.attnum)
         from pg_catalog.pg_attribute b
        where b.attrelid = p.old
          and b.attnum::text in (
            select pg_catalog.regexp_split_to_table(pg_catalog.to_jsonb(r) ->> 'prattrs', '[^0-9]+'))) as prattrs) x
    left join lateral (
     select pg_catalog.to_jsonb(v) ->> 'rowfilter' as rowfilter
       from pg_catalog.pg_publication_tables v
      where v.pubname = u.pubname and v.schemaname = s.nspname and v.tablename = c.relname) t on true
)
select s.statement
  from (
   select 1 as i, pg_catalog.format('drop %s %I on %s', a.class, a.object, a.name) as statement
     from attached a
    where a.owner = a.new and a.is_same
    union all
   select 2, m.definition from missing m
    union all
   select 3, pg_catalog.format('alter table %s %s %s %I', m.name,
                               case m.state when 'D' then 'disable' when 'R' then 'enable replica'
                                            else 'enable always' end, m.class, m.object)
     from missing m
    where m.state <> 'O'
    union all
   select 4, pg_catalog.format('alter table %s %s row level security', p.name, v.verb)
     from pair p
    cross join lateral (
      select case when p.relrowsecurity and not p.new_security then 'enable'
                  when p.is_same and p.new_security and not p.relrowsecurity then 'disable' end as verb
       union all
      select case when p.relforcerowsecurity and not p.new_forced then 'force'
                  when p.is_same and p.new_forced and not p.relforcerowsecurity then 'no force' end) v
    where v.verb is not null
    union all
   select 5, pg_catalog.format('alter table %s replica identity %s', p.name,
                               case p.relreplident when 'f' then 'full' when 'n' then 'nothing'
                                                   else 'using index ' || pg_catalog.quote_ident(x.relname) end)
     from pair p
     left join pg_catalog.pg_index o on o.indrelid = p.old and o.indisreplident
     left join pg_catalog.pg_class x on x.oid = o.indexrelid
    where p.relreplident <> p.new_replident and p.relreplident <> 'd'
      and (p.relreplident <> 'i' or exists (
        select from pg_catalog.pg_index n
          join pg_catalog.pg_class y on y.oid = n.indexrelid
         where n.indrelid = p.new and y.relname = x.relname))
    union all
   select 6, pg_catalog.format('alter publication %I add table only %s%s%s', u.pubname, u.name,
                               coalesce(' (' || u.prattrs || ')', ''), coalesce(' where (' || u.rowfilter || ')', ''))
     from published u) s
 order by s.i
