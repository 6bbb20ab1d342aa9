-- Selects the kinds with tasks in the projection that are available or running, and no live worker; by name.
-- $1 maximum number of tasks, in any state, of a kind whose oldest task is read.
-- Returns kind, number of these tasks, and how many milliseconds the oldest has been so; -1: not read.
-- Locks nothing. Indexes: primary keys; of task_count a loose scan that goes backwards, so that it lands on the
-- newest row of each total; of task at most $1 rows of a kind that has no more by its totals, else none.
with recursive kinds as (
  (select c.kind from taskledger.task_totals c order by c.kind desc limit 1)
  union all
  select (select c.kind from taskledger.task_totals c where c.kind < k.kind order by c.kind desc limit 1)
    from kinds k
   where k.kind is not null
), handled as (
  select distinct w.kind from taskledger.worker_kinds w
)
select k.kind, waiting.tasks,
       coalesce(case when (
         select sum(newest.tasks)
           from unnest(enum_range(null::taskledger.task_state)) s(state)
          cross join lateral (
            select c.tasks
              from taskledger.task_totals c
             where c.kind = k.kind and c.state = s.state
             order by c.n desc
             limit 1) newest) <= $1::integer
         then (select case when count(*) > $1::integer then null
                             else floor(extract(epoch from
                    clock_timestamp() - min(t.updated_at) filter (where t.state in ('available', 'running')))
                  * 1000)::bigint end
                   from (select o.state, o.updated_at
                           from taskledger.tasks o
                          where o.kind = k.kind
                          order by o.biz_id
                          limit $1::integer + 1) t) end, -1)
  from kinds k
 cross join lateral (
   select sum(newest.tasks)::bigint as tasks
     from (values ('available'::taskledger.task_state), ('running')) s(state)
    cross join lateral (
      select c.tasks
        from taskledger.task_totals c
       where c.kind = k.kind and c.state = s.state
       order by c.n desc
       limit 1) newest) waiting
 where waiting.tasks > 0 and not exists (select from handled h where h.kind = k.kind)
 order by k.kind
