-- Selects the newest alarms of every receiver, by receiver. A loose scan: it skips from the end of one receiver's
-- alarms to the beginning of the next one's.
-- $1 kind of alarms, $2 how many of each. Locks nothing. Index: primary key.
with recursive receiver as (
  (select split_part(e.biz_id, '/', 1) collate "C" as name from taskledger.event e
    where e.kind = $1::text
    order by e.biz_id
    limit 1)
  union all
  select split_part(next.biz_id, '/', 1) collate "C"
    from receiver r
   cross join lateral (
     select e.biz_id from taskledger.event e
      where e.kind = $1::text and e.biz_id > r.name || '0'
      order by e.biz_id
      limit 1) next
)
select alarm.biz_id
  from receiver r
 cross join lateral (
   select e.biz_id from taskledger.event e
    where e.kind = $1::text and e.biz_id > r.name || '/' and e.biz_id < r.name || '0' and e.version = 1
      and e.biz_id ~ '/[0-9]{19}$'
    order by e.biz_id desc
    limit $2::integer) alarm
 order by r.name, alarm.biz_id desc
