-- Returns the number of tasks of a kind that have succeeded, as the projector has it. $1 kind. Takes no locks.
select coalesce(sum(c.tasks), 0)::integer from taskledger.task_counts c where c.kind = $1 and c.state = 'succeeded'
