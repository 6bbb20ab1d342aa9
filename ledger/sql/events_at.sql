-- The events at given positions, in position order.
-- $1 positions (text array literal). Locks nothing. Index: position.
select e.position, e.version, e.attempt, e.shard, e.type::text, e.recorded_at, e.kind, e.biz_id,
       coalesce(e.actor, ''), e.data::text, e.meta::text
  from taskledger.event e
 where e.position = any ($1::text::bigint[])
 order by e.position
