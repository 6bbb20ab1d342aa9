-- Returns the microseconds until the next firing of all schedules; null: no firing follows.
-- $1 microseconds added to the clock (0 except in tests), $2 names of schedules to leave out (text array literal).
-- Locks nothing. Reads the whole small table.
select (extract(epoch from min(s.next_at) - clock_timestamp()) * 1000000)::bigint - $1::bigint
  from taskledger.schedule s
 where not s.paused and s.name <> all ($2::text::text[])
