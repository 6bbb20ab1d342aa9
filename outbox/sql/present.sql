-- Selects the present snapshot. The event of each message that is on the stream at this moment is visible in it.
-- Locks nothing.
select pg_current_snapshot()::text
