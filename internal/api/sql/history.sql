-- A part of the events of a task, in order.
-- $1 kind, $2 biz_id, $3 version to continue after, $4 maximum number of events.
-- Locks nothing. Index: primary key.
select e.position, e.version, e.attempt, e.shard, e.type::text, (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, coalesce(e.actor, ''),
       coalesce((select l.name from taskledger.logins l where l.id = e.login_id), ''),
       e.data_version, e.priority, coalesce(e.partition, ''), coalesce(e.run, 0), coalesce(e.order_key, ''),
       e.data::text, e.meta::text
  from taskledger.event e
 where e.kind = $1::text and e.biz_id = $2::text and e.version > $3::bigint
 order by e.version
 limit $4::bigint
