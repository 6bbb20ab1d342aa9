-- The events above a position up to another one, in the order of positions, with the columns of events.sql. The limit
-- is above any number of events: it has the planner choose the index, whatever the statistics are.
-- $1 position, $2 last position, $3 the limit. Locks nothing. Index: (position).
select e.position, e.kind, e.biz_id, e.version, e.run, e.attempt, e.type::text,
       (extract(epoch from e.recorded_at) * 1e6)::bigint, e.login_id, e.shard, e.data_version, e.priority, e.order_key,
       e.partition, e.data::text, e.meta::text, e.actor
  from (
   select n.* from taskledger.event n
    where n.position > $1::bigint and n.position <= $2::bigint
    order by n.position
    limit $3::bigint) e
 order by e.position
