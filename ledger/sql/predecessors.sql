-- Selects the keys that name a task.
-- $1 kinds, $2 biz_ids: text array literals of one length. Returns the numbers of the keys that exist, from 1.
-- Locks nothing. Index: primary key (in existing_tasks, because a producer may not read others' events).
select t.i
  from taskledger_internal.existing_tasks($1::text::text[], $2::text::text[], '{}') t
