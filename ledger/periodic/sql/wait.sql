-- Returns the microseconds until the next firing of all schedules (null: no firing follows), and whether a schedule
-- waits until its previous task has finished, which finished.sql checks.
-- $1 microseconds added to the clock (0 except in tests), $2 names of schedules to leave out (text array literal).
-- Locks nothing. Reads the whole small table.
select (extract(epoch from min(s.next_at) filter (where s.paused_at is null and s.name <> all ($2::text::text[]))
                           - clock_timestamp()) * 1000000)::bigint - $1::bigint,
       coalesce(bool_or(s.fixed_delay_ms is not null and s.next_at is null), false)
  from taskledger.schedule s
