-- Selects when the server started, even after a crash of one of its processes: then the postmaster stays and restarts
-- the others. Without the right to see them (pg_read_all_stats) it is the postmaster's start.
-- Locks nothing.
select (extract(epoch from greatest(pg_postmaster_start_time(), max(a.backend_start))) * 1e6)::bigint
  from pg_stat_activity a
 where a.backend_type = 'checkpointer'
