-- Selects parked events that are not discarded, in the order of their positions.
-- $1 position to begin after, $2 maximum number. Locks nothing. Index: parked_waiting.
select p.position, p.kind, p.biz_id, p.version, p.reason, (extract(epoch from p.parked_at) * 1e6)::bigint
  from taskledger.parked p
 where p.position > $1::bigint and not p.discarded
 order by p.position
 limit $2::bigint
