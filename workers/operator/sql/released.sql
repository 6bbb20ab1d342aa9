-- Selects the tasks that the reconciler releases again and again, those released most often first, as long as no
-- other event has followed.
-- $1 maximum number of tasks. Returns kind, biz_id, how often in a row, and since when.
-- Locks nothing. Indexes: primary keys of lease and event.
select r.kind, r.biz_id, r.times, (extract(epoch from r.since) * 1e6)::bigint
  from taskledger.repeated_releases r
 cross join lateral (
   select h.type, h.actor
     from taskledger.event h
    where h.kind = r.kind and h.biz_id = r.biz_id
    order by h.version desc
    limit 1) head
 where head.type = 'released' and head.actor = 'reconciler'
 order by r.times desc, r.kind, r.biz_id
 limit $1::integer
