-- The number of sessions and prepared transactions in the database, without this session and the processes $1.
select (select count(*) from pg_stat_activity a
         where a.datid = d.oid and a.backend_type in ('client backend', 'walsender') and a.pid <> pg_backend_pid()
           and a.pid <> all (coalesce($1, array[]::bigint[])))::integer
     + (select count(*) from pg_prepared_xacts x where x.database = d.datname)::integer
     + (select count(*) from pg_replication_slots s where s.datoid = d.oid)::integer
  from pg_database d
 where d.datname = current_database()
