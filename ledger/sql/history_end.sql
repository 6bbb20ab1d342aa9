-- Reads the newest events of a task, oldest first.
-- $1 kind, $2 biz_id, $3 version before which the events are, $4 number of events.
-- Locks nothing. Index: primary key, backwards.
with newest as materialized (
  select n.*
    from taskledger.event n
   where n.kind = $1::text and n.biz_id = $2::text and n.version < $3::bigint
   order by n.version desc
   limit $4::bigint
)
select e.position, e.version, e.attempt, e.shard, e.type::text, (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, coalesce(e.actor, ''),
       coalesce((select l.name from taskledger.logins l where l.id = e.login_id), ''),
       e.data_version, e.priority, coalesce(e.partition, ''), coalesce(e.run, 0), coalesce(e.order_key, ''),
       e.data::text, e.meta::text
  from newest e
 order by e.version
