-- A fingerprint of the catalog of the database. A row of pg_class changes when its table is emptied, so its content
-- counts, without the number of rows that autovacuum writes there. A change of any other catalog adds a row of a later
-- transaction or removes one, so the number of its rows and the sum of their transactions count, which are the same in
-- all copies of a database.
select (select md5(string_agg(row(c.oid, c.relname, c.relnamespace, c.relowner, c.relkind, c.relpersistence, c.relacl,
               c.reloptions, c.relrowsecurity, c.relforcerowsecurity, c.relnatts, c.relhasrules,
               c.relreplident)::text, ',' order by c.oid)) from pg_class c)
    || (select count(*) from pg_statistic s join pg_class c on c.oid = s.starelid
         where c.relnamespace <> 'pg_catalog'::regnamespace)
    || (select string_agg(concat_ws(' ', s.catalog, s.rows, s.sum), ',' order by s.catalog)
          from (select 'attribute' as catalog, count(*) as rows, sum(a.xmin::text::bigint) as sum from pg_attribute a
              union all select 'default', count(*), sum(a.xmin::text::bigint) from pg_attrdef a
              union all select 'proc', count(*), sum(p.xmin::text::bigint) from pg_proc p
              union all select 'trigger', count(*), sum(t.xmin::text::bigint) from pg_trigger t
              union all select 'policy', count(*), sum(p.xmin::text::bigint) from pg_policy p
              union all select 'constraint', count(*), sum(c.xmin::text::bigint) from pg_constraint c
              union all select 'index', count(*), sum(i.xmin::text::bigint) from pg_index i
              union all select 'rewrite', count(*), sum(r.xmin::text::bigint) from pg_rewrite r
              union all select 'namespace', count(*), sum(n.xmin::text::bigint) from pg_namespace n
                         where n.nspname !~ '^pg_(toast_)?temp_'
              union all select 'type', count(*), sum(t.xmin::text::bigint) from pg_type t
              union all select 'acl', count(*), sum(a.xmin::text::bigint) from pg_default_acl a
              union all select 'extension', count(*), sum(e.xmin::text::bigint) from pg_extension e
              union all select 'event trigger', count(*), sum(e.xmin::text::bigint) from pg_event_trigger e
              union all select 'publication', count(*), sum(p.xmin::text::bigint) from pg_publication p
              union all select 'statistic', count(*), sum(s.xmin::text::bigint) from pg_statistic_ext s
              union all select 'sequence', count(*), sum(s.xmin::text::bigint) from pg_sequence s
              union all select 'comment', count(*), sum(d.xmin::text::bigint) from pg_description d
              union all select 'label', count(*), sum(l.xmin::text::bigint) from pg_seclabel l
              union all select 'large object', count(*), sum(l.xmin::text::bigint) from pg_largeobject_metadata l
              union all select 'subscription', count(*), sum(s.xmin::text::bigint) from pg_subscription s) s)
    || coalesce((select string_agg(row(s.setrole, s.setconfig)::text, ',' order by s.setrole)
                   from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase
                  where d.datname = current_database()), '')
    || (select row(d.datacl, d.datconnlimit, d.datallowconn, d.datistemplate)::text
          from pg_database d where d.datname = current_database())
