-- The snapshot of the verification: events that it sees are counted by rows.sql.
-- Locks nothing.
select pg_current_snapshot()::text
