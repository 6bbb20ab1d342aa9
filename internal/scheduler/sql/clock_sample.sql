-- A moment, and a transaction ID drawn after it: a transaction that draws a lower ID has drawn it already, and
-- a transaction with a higher ID reads the clock after that moment. The order needs the materialized CTE.
-- Locks nothing; uses up a transaction ID.
with clock as materialized (
  select clock_timestamp() as at
)
select (extract(epoch from c.at) * 1e6)::bigint, pg_current_xact_id()::text from clock c
