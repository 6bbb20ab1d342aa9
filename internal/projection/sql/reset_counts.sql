-- Counts the archived tasks, which task_counts subtracts, in the emptied table. Locks nothing.
insert into taskledger.task_count (kind, state, n, value)
select a.kind, a.state, 1, a.tasks from taskledger_internal.archived_totals() a
