-- Selects the last recorded pause of each of some subscribers, among the newest records of pauses.
-- $1 names; $2 number of records that are read. Returns the name, the actor, when, and the reason ('': none).
-- Locks nothing. Index: primary key of event.
select distinct on (p.name) p.name, p.actor, p.at, p.reason
  from (
    select coalesce(e.data->'detail'->>'subscriber', '') as name, coalesce(e.actor, '') as actor,
           (extract(epoch from e.recorded_at) * 1e6)::bigint as at, coalesce(e.data->>'reason', '') as reason,
           e.position
      from taskledger.event e
     where e.kind = 'taskledger.operation' and e.biz_id >= 'subscriber.pause/' and e.biz_id < 'subscriber.pause0'
       and e.version = 1
     order by e.biz_id desc
     limit $2::bigint) p
 where p.name = any ($1::text[])
 order by p.name, p.position desc
