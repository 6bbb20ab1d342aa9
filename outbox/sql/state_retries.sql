-- Reads the parked events of one task that an operator wants to be retried, in order.
-- $1 reader. Locks nothing. Indexes: primary keys; it reads the events that are parked.
select e.position, e.version, e.attempt, e.shard, e.type::text, (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, coalesce(e.actor, ''),
       coalesce((select l.name from taskledger.logins l where l.id = e.login_id), ''),
       e.data_version, e.priority, coalesce(e.partition, ''), coalesce(e.run, 0), coalesce(e.order_key, ''),
       e.data::text, e.meta::text
  from (
   select r.kind, r.biz_id
     from taskledger.subscriber_parked r
    where r.reader = $1::text and r.state = 'retry'
    order by r.kind, r.biz_id
    limit 1) k
  join taskledger.subscriber_parked p
    on p.reader = $1::text and p.kind = k.kind and p.biz_id = k.biz_id and p.state <> 'discarded'
 cross join lateral (
   select v.*
     from taskledger.event v
    where v.kind = p.kind and v.biz_id = p.biz_id and v.version = p.version
    limit 1) e
 order by e.version
