-- The number of tags of all tasks. Locks nothing. Index: none; it reads the whole table.
select count(*) from taskledger.task_tag
