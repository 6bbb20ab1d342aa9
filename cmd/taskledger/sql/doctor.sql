-- Selects the data that doctor examines: version, settings, connections, whether the server is a standby, the clock,
-- the login with its roles and whether it is a worker, whether policies do not apply to it, the product's version in
-- words, and whether Citus is installed.
-- Locks nothing. Reads views of the server, which hide the backend_type of other logins' sessions from the login.
select current_setting('server_version_num')::bigint, current_setting('fsync'), current_setting('full_page_writes'),
       current_setting('autovacuum'), current_setting('synchronous_commit'), current_setting('server_encoding'),
       current_setting('max_connections')::bigint,
       current_setting('superuser_reserved_connections')::bigint +
       coalesce(current_setting('reserved_connections', true)::bigint, 0), -- since PostgreSQL 16
       (select count(*) from pg_catalog.pg_stat_activity a
          where a.datid is not null and a.usesysid is not null
            and coalesce(a.backend_type, 'client backend') = 'client backend'),
       pg_is_in_recovery(), (extract(epoch from clock_timestamp()) * 1e6)::bigint,
       current_setting('is_superuser') = 'on', session_user::text,
       coalesce((select string_agg(distinct r.rolname, ',' order by r.rolname)
                   from pg_catalog.pg_namespace n
                  cross join lateral aclexplode(n.nspacl) a
                   join pg_catalog.pg_roles r on r.oid = a.grantee
                  where n.nspname = 'taskledger' and pg_has_role(r.oid, 'member')), ''),
       exists (select
                 from pg_catalog.pg_proc p
                 join pg_catalog.pg_namespace n on n.oid = p.pronamespace
                where n.nspname = 'taskledger' and p.proname = 'claim'
                  and has_function_privilege(p.oid, 'execute')),
       (select r.rolbypassrls from pg_catalog.pg_roles r where r.rolname = session_user), version(),
       exists (select from pg_catalog.pg_extension x where x.extname = 'citus')
