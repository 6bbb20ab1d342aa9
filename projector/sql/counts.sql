-- Tasks by kind and state: the newest row of each running total, sorted, without zeros.
-- A loose index scan that goes backwards: it reads the newest row of each total and steps over none of the
-- rows removed at the old end.
-- Locks nothing. Index: primary key.
with recursive newest as (
  (select c.kind, c.state, c.value from taskledger.task_count c
    order by c.kind desc, c.state desc, c.n desc
    limit 1)
  union all
  select c.kind, c.state, c.value
    from newest
   cross join lateral (
     select o.kind, o.state, o.value from taskledger.task_count o
      where (o.kind, o.state) < (newest.kind, newest.state)
      order by o.kind desc, o.state desc, o.n desc
      limit 1) c
)
select n.kind, n.state::text, n.value from newest n
 where n.value <> 0
 order by n.kind, n.state
