-- One of the sessions whose transactions are older than a run, longest open first; no row without one.
-- $1 run. Returns the process (0: the dispatcher), its login and since when the transaction is open, in microseconds
-- since 1970 (0: this login may not know).
-- Locks nothing.
select coalesce(w.pid, 0)::bigint, coalesce(w.login, ''), coalesce((date_part('epoch', w.since) * 1e6)::bigint, 0)
  from taskledger_internal.archive_waits($1::bigint::integer) w
 order by w.since
 limit 1
