-- At most $1 kinds that the projector has counted, even if all their tasks are archived.
-- Locks nothing. Indexes: primary key, in a loose scan whose cost grows with the number of kinds, not of tasks.
with recursive counted(kind, i) as (
  (select t.kind, 1 from taskledger_internal.task_totals t order by t.kind desc limit 1)
  union all
  select t.kind, c.i + 1
    from counted c
   cross join lateral (select n.kind from taskledger_internal.task_totals n
                        where n.kind < c.kind order by n.kind desc limit 1) t
   where c.i < $1::integer
)
select c.kind from counted c
