-- Selects whether a task may be available or running, by the running totals: also true if there are $1 totals or more.
-- $1 most totals that are read. Locks nothing. Index: primary key of task_count, by the loose scan of task_counts.
with recursive newest as (
  (select c.kind, c.state, c.value
     from taskledger.task_count c
    order by c.kind desc, c.state desc, c.n desc
    limit 1)
  union all
  select c.kind, c.state, c.value
    from newest
   cross join lateral (
     select o.kind, o.state, o.value
       from taskledger.task_count o
      where (o.kind, o.state) < (newest.kind, newest.state)
      order by o.kind desc, o.state desc, o.n desc
      limit 1) c
), totals as materialized (
  select n.state, n.value from newest n limit $1::bigint
)
select count(*) = $1::bigint
       or coalesce(bool_or(t.value <> 0) filter (where t.state in ('available', 'running')), false)
  from totals t
