-- Reads events after a position, in position order. It is not a feed: a reader that continues after the last position
-- skips events that are committed late.
-- $1 position, $2 maximum number of events. Locks nothing. Index: position.
select e.position, e.version, e.attempt, e.shard, e.type::text, (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, coalesce(e.actor, ''),
       coalesce((select l.name from taskledger.logins l where l.id = e.login_id), ''),
       e.data_version, e.priority, coalesce(e.partition, ''), coalesce(e.run, 0), coalesce(e.order_key, ''),
       e.data::text, e.meta::text
  from taskledger.event e
 where e.position > $1::bigint
 order by e.position
 limit $2::integer
