-- Returns the records of an action that have begun and not ended, among its newest 1,000, oldest first.
-- $1 action. Locks nothing. Index: primary key.
select r.biz_id, r.actor, r.recorded_at, r.args, r.position
  from (
   select e.biz_id, coalesce(e.actor, '') as actor, (extract(epoch from e.recorded_at) * 1e6)::bigint as recorded_at,
          coalesce(e.data::text, '{}') as args, e.position
     from taskledger.event e
    where e.kind = 'taskledger.operation' and e.biz_id >= $1::text || '/' and e.biz_id < $1::text || '0'
      and e.version = 1
    order by e.biz_id desc
    limit 1000) r
 where not exists (
   select from taskledger.event n
    where n.kind = 'taskledger.operation' and n.biz_id = r.biz_id and n.version = 2)
 order by r.biz_id
