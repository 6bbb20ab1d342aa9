-- Selects events that are published again on an operator's request.
-- $1 positions (array literal). Returns them in position order. Locks nothing. Index: (position).
select e.position, e.version, e.attempt, e.shard, e.type::text, (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, e.data::text, e.meta::text
  from unnest($1::text::bigint[]) p(position)
  join taskledger.event e on e.position = p.position
 order by e.position
