-- The present as a place: everything that is visible now, on a primary.
-- Returns whether the database is a standby, the snapshot, and the last position. Locks nothing. Index: (position).
select pg_is_in_recovery(), pg_current_snapshot()::text,
       coalesce((select e.position from taskledger.event e order by e.position desc limit 1), 0)
