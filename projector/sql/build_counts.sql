-- Returns the statement that counts the tasks of a new table.
-- $1 schema. Locks nothing.
select format('insert into %1$I.task_count (kind, state, n, value)
select t.kind, t.state, 1, count(*) from %1$I.task t group by t.kind, t.state', $1::text)
