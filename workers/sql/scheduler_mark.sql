-- A moment, and a transaction id drawn after it: whoever draws a lower one later has not, and who
-- draws a higher one reads the clock after that moment. In this order, so by a materialized CTE.
-- Locks nothing; spends a transaction id.
with clock as materialized (
  select clock_timestamp() as at
)
select c.at, pg_current_xact_id()::text from clock c
