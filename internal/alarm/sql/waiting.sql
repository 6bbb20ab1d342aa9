-- Selects the task that has been available longest, among the next tasks of a kind in the projection.
-- $1 kind, $2 biz_id to continue after, $3 how many tasks to read.
-- Answers the last biz_id that was read ('' at the end of the kind), and the biz_id of that task with its age in
-- milliseconds, or null. Locks nothing. Index: primary key of task.
with page as materialized (
  select t.biz_id, t.state, t.updated_at
    from taskledger.tasks t
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
