-- Selects the task of a kind that has been available longest, among the next tasks of all kinds that the projector
-- lists as lingering and that were enqueued before a limit.
-- $1 kind; $2 enqueued_at in microseconds since 1970, $3 kind and $4 biz_id of the task to continue after; $5 how many
-- tasks to read; $6 the limit: milliseconds before now.
-- Answers the place of the last task that was read ('' as biz_id at the end of the list), and the biz_id of that task
-- with its age in milliseconds, or null. Locks nothing. Index: task_lingering.
with page as materialized (
  select t.enqueued_at, t.kind, t.biz_id, t.state, t.updated_at
    from taskledger_internal.lingering_tasks t
   where (t.enqueued_at, t.kind, t.biz_id)
         > ('epoch'::timestamptz + $2::bigint * interval '1 microsecond', $3::text, $4::text)
     and t.enqueued_at < clock_timestamp() - $6::bigint * interval '1 millisecond'
   order by t.enqueued_at, t.kind, t.biz_id
   limit $5::integer
), oldest as (
  select p.biz_id, floor(extract(epoch from clock_timestamp() - p.updated_at) * 1000)::bigint as ms
    from page p
   where p.kind = $1::text and p.state = 'available'
   order by p.updated_at
   limit 1
), last as (
  select p.enqueued_at, p.kind, p.biz_id
    from page p
   order by p.enqueued_at desc, p.kind desc, p.biz_id desc
   limit 1
)
select coalesce((extract(epoch from l.enqueued_at) * 1e6)::bigint, 0), coalesce(l.kind, ''),
       case when (select count(*) from page p) < $5::integer then '' else l.biz_id end, o.biz_id, coalesce(o.ms, 0)
  from (select) always
  left join last l on true
  left join oldest o on true
