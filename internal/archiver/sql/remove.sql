-- Removes a batch of tasks, and records it.
-- $1 run, $2 kinds, $3 biz_ids, $4 last versions: array literals of one length; $5 name of the file with their events,
-- $6 actor and $7 reason, or null.
-- Returns how many tasks and events were removed.
-- Locks the last events of the tasks, passing over locked ones, and a row of mutex. Indexes: primary keys.
select r.tasks::bigint, r.events
  from taskledger_internal.remove_tasks($1::bigint::integer, $2::text::text[], $3::text::text[], $4::text::integer[],
                                        $5::text, $6::text, $7::text) r
