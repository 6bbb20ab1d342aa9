-- The first event at a position or above it: its position, and its time in microseconds.
-- $1 position. Locks nothing. Index: (position).
select e.position, (extract(epoch from e.recorded_at) * 1e6)::bigint
  from taskledger.event e
 where e.position >= $1::bigint
 order by e.position
 limit 1
