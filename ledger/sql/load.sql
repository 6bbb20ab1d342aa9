-- Reads the first events of a task, in order.
-- $1 kind, $2 biz_id, $3 number of events. Locks nothing. Index: primary key.
select e.position, e.version, e.attempt, e.shard, e.type::text, (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, coalesce(e.actor, ''),
       coalesce((select l.name from taskledger.logins l where l.id = e.login_id), ''),
       e.data_version, e.priority, coalesce(e.partition, ''), coalesce(e.run, 0), coalesce(e.order_key, ''),
       e.data::text, e.meta::text
  from taskledger.event e
 where e.kind = $1::text and e.biz_id = $2::text
 order by e.version
 limit $3::bigint
