-- Events after a position, in position order. Not a feed: an event committed late is skipped
-- by whoever goes on from the last position.
-- $1 position, $2 how many at most. Locks nothing. Index: position.
select e.position, e.version, e.attempt, e.shard, e.type::text, e.recorded_at, e.kind, e.biz_id,
       coalesce(e.actor, ''), e.data::text, e.meta::text
  from taskledger.event e
 where e.position > $1::bigint
 order by e.position
 limit $2::integer
