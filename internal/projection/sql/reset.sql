-- Empties the built-in projection. Locks the tables until the end of the transaction.
truncate taskledger.task, taskledger.task_count, taskledger.kind_stats, taskledger.kind_hour,
         taskledger.illegal_event, taskledger.task_tag
