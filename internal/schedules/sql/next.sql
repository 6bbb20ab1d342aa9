-- Microseconds until the first firing of all schedules, or null. Paused ones do not count.
-- Locks nothing. Reads the whole small table, without the args of its rows.
select (extract(epoch from min(s.next_at) - clock_timestamp()) * 1e6)::bigint
  from taskledger.schedule s
 where s.paused_at is null
