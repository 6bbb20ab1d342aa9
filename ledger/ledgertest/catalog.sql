-- A hash of the catalog of the database. A row of pg_class changes when its table is emptied, so its content counts. Of
-- other rows the transaction counts that wrote them, which is the same in all copies of a database.
select md5(string_agg(r.text, ',' order by r.text))
  from (select row('class', c.oid, c.relname, c.relnamespace, c.relowner, c.relkind, c.relpersistence, c.relacl,
                   c.reloptions, c.relrowsecurity, c.relforcerowsecurity, c.relnatts, c.relhasrules, c.relreplident,
                   case when c.relkind in ('r', 'm') and c.relnamespace <> 'pg_catalog'::regnamespace then c.reltuples
                   end)::text as text
          from pg_class c
        union all select row('attribute', a.attrelid, a.attnum, a.xmin)::text from pg_attribute a
        union all select row('default', a.oid, a.xmin)::text from pg_attrdef a
        union all select row('proc', p.oid, p.xmin)::text from pg_proc p
        union all select row('trigger', t.oid, t.xmin)::text from pg_trigger t
        union all select row('policy', p.oid, p.xmin)::text from pg_policy p
        union all select row('constraint', c.oid, c.xmin)::text from pg_constraint c
        union all select row('index', i.indexrelid, i.xmin)::text from pg_index i
        union all select row('rewrite', r.oid, r.xmin)::text from pg_rewrite r
        union all select row('namespace', n.oid, n.xmin)::text from pg_namespace n
                   where n.nspname !~ '^pg_(toast_)?temp_'
        union all select row('type', t.oid, t.xmin)::text from pg_type t
        union all select row('acl', a.oid, a.xmin)::text from pg_default_acl a
        union all select row('extension', e.oid, e.xmin)::text from pg_extension e
        union all select row('event trigger', e.oid, e.xmin)::text from pg_event_trigger e
        union all select row('publication', p.oid, p.xmin)::text from pg_publication p
        union all select row('statistic', s.oid, s.xmin)::text from pg_statistic_ext s
        union all select row('sequence', s.seqrelid, s.xmin)::text from pg_sequence s
        union all select row('comment', d.objoid, d.classoid, d.objsubid, d.xmin)::text from pg_description d
        union all select row('label', l.objoid, l.classoid, l.objsubid, l.xmin)::text from pg_seclabel l
        union all select row('large object', l.oid)::text from pg_largeobject_metadata l
        union all select row('setting', s.setrole, s.setconfig)::text from pg_db_role_setting s
                   where s.setdatabase = (select d.oid from pg_database d where d.datname = current_database())
        union all select row('database', d.datacl, d.datconnlimit, d.datallowconn, d.datistemplate)::text
                    from pg_database d where d.datname = current_database()
        union all select row('subscription', s.oid)::text from pg_subscription s) r
