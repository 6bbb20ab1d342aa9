-- Empties the projections. Locks the tables until the end of the transaction.
truncate taskledger.task, taskledger.task_count, taskledger.illegal_event
