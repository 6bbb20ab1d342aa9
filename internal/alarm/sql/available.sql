-- Selects the number of available tasks of a kind, from the projection.
-- $1 kind.
-- Locks nothing. Index: primary key of task_count, backwards.
select c.tasks
  from taskledger_internal.task_totals c
 where c.kind = $1::text and c.state = 'available'
 order by c.n desc
 limit 1
