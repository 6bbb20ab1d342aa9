-- Selects the number of tasks by kind and state, sorted.
-- Locks nothing. Index: primary key of task_count, by the loose scan of the view.
select c.kind, c.state::text, c.tasks from taskledger.task_counts c order by c.kind, c.state
