-- The position of the newest event, and when it was recorded, in microseconds since 1970. No row in an empty ledger.
-- Locks nothing. Index: primary key of the position.
select e.position, (extract(epoch from e.recorded_at) * 1e6)::bigint
  from taskledger.event e
 order by e.position desc
 limit 1
