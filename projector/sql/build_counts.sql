-- Returns the statement that counts the tasks of a new table, and the archived ones, which task_counts subtracts.
-- $1 schema. Locks nothing.
select format('insert into %1$I.task_count (kind, state, n, value)
select c.kind, c.state, 1, sum(c.tasks)::bigint
  from (select t.kind, t.state, count(*) as tasks from %1$I.task t group by t.kind, t.state
        union all
        select a.kind, a.state, a.tasks from taskledger_internal.archived_totals() a) c
 group by c.kind, c.state', $1::text)
