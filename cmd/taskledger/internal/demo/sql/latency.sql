-- Milliseconds from enqueue to success, of tasks without a failure: p50 and p99 of all tasks, and of tasks that were
-- enqueued and done outside every trouble. $1 begins and $2 ends of the troubles, text array literals. Takes no locks.
-- Needs event's primary key; it reads the kind's events once.
with task as (
  select e.recorded_at as enqueued_at, s.recorded_at as done_at,
         extract(epoch from s.recorded_at - e.recorded_at) * 1000 as ms
    from taskledger.event e
    join taskledger.event s on s.kind = e.kind and s.biz_id = e.biz_id and s.type = 'succeeded'
   where e.kind = 'coupon.send' and e.version = 1
     and not exists (select from taskledger.event f where f.kind = e.kind and f.biz_id = e.biz_id and f.type = 'failed')
), trouble as (
  select t.begins, t.ends from unnest($1::text::timestamptz[], $2::text::timestamptz[]) t(begins, ends)
)
select coalesce(percentile_cont(0.50) within group (order by t.ms), 0)::double precision,
       coalesce(percentile_cont(0.99) within group (order by t.ms), 0)::double precision,
       coalesce(percentile_cont(0.50) within group (order by t.ms) filter (where c.calm), 0)::double precision,
       coalesce(percentile_cont(0.99) within group (order by t.ms) filter (where c.calm), 0)::double precision
  from task t
 cross join lateral (
   select not exists (select from trouble x where t.enqueued_at < x.ends and t.done_at > x.begins) as calm) c
