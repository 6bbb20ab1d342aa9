-- Takes the advisory lock of migrations for the session, unless another session has it. Returns whether to try again:
-- then that session's login may migrate, or the session has ended meanwhile. $1 number of the lock. Locks no row.
select case
         when pg_catalog.pg_try_advisory_lock($1::bigint) then false
         else coalesce((
           select bool_or(pg_catalog.pg_has_role(a.usesysid, n.nspowner, 'member'))
             from pg_catalog.pg_locks k
             join pg_catalog.pg_stat_activity a on a.pid = k.pid
             join pg_catalog.pg_namespace n on n.nspname = 'taskledger'
            where k.locktype = 'advisory' and k.objsubid = 1 and k.granted
              and k.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
              and k.classid::bigint = $1::bigint >> 32 and k.objid::bigint = $1::bigint & 4294967295), true)
       end
