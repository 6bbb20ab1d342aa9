-- Selects the events at some positions.
-- $1 positions (array literal). Raises an error on a standby, where an event may be missing.
-- Locks nothing. Index: (position).
select e.position, e.kind, e.biz_id, e.version, (extract(epoch from e.recorded_at) * 1e6)::bigint
  from unnest($1::text::bigint[]) p(position)
  join taskledger.event e on e.position = p.position
 where taskledger_internal.is_primary()
