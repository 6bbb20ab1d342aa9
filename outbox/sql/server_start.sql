-- When the server began to run, be it after a crash of one of its processes: then it keeps its
-- postmaster, and starts all others anew. Without the right to see those (pg_read_all_stats) it is
-- the start of the postmaster.
select greatest(pg_postmaster_start_time(), max(a.backend_start))
  from pg_stat_activity a
 where a.backend_type = 'checkpointer'
