-- Reads every event, task by task. Locks nothing. Index: primary key.
select e.position, e.version, e.attempt, e.shard, e.type::text, (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id,
       e.priority, coalesce(e.partition, ''), coalesce(e.run, 0), coalesce(e.order_key, ''), e.data::text, e.meta::text
  from taskledger.event e
 order by e.kind, e.biz_id, e.version
