-- Takes permits for attempts whose starts are not recorded yet: see taskledger_internal.begin_attempts.
-- Of each attempt: $1 kind, $2 biz_id, $3 version of the task's last event, $4 number: array literals. $5 the worker.
-- Returns the numbers of the attempts, from 1, that have their permits. Locks the slots that it takes, and waits for
-- no other. Indexes: primary keys.
select unnest(taskledger_internal.begin_attempts($1::text::text[], $2::text::text[], $3::text::integer[],
                                                 $4::text::integer[], $5::text))
