-- Begins the run that waits behind the last run of a task, if the task has finished.
-- $1 kind and $2 biz_id of the task. Returns whether no run waits any more.
-- Waits for concurrent transactions that append to the task. Indexes: primary key, event_run.
select taskledger_internal.begin_next($1::text, $2::text)
