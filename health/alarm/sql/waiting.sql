-- The task that has been available longest, among the next $3 of a kind in the projection.
-- $1 kind, $2 biz_id to go on after, $3 how many to look at.
-- Answers the biz_id that was looked at last ('' if it was the last of the kind), and null or the
-- biz_id of that task with the milliseconds. Locks nothing. Index: primary key.
with page as materialized (
  select t.biz_id, t.state, t.updated_at
    from taskledger.task t
   where t.kind = $1::text and t.biz_id > $2::text
   order by t.biz_id
   limit $3::integer
), oldest as (
  select p.biz_id, floor(extract(epoch from clock_timestamp() - p.updated_at) * 1000)::bigint as ms
    from page p
   where p.state = 'available'
   order by p.updated_at
   limit 1
)
select r.biz_id, o.biz_id, coalesce(o.ms, 0)
  from (select case when count(*) < $3::integer then '' else max(p.biz_id) end as biz_id from page p) r
  left join oldest o on true
