-- append_required.sql for a task whose last event the caller has read, at $3: searching for it takes a sixth of the
-- transaction. It inserts a null version if the guard is not set, or if the database or its server has changed since
-- the event was read, which may then be lost. It fails with unique_violation if another event has followed.
-- $1 to $7 as in append_required.sql, $8 the attempt and $9 the shard of the new event, $10 the value of
-- taskledger_internal.session_incarnation() at that read. The caller writes the type $14 into the text. $11 the task's
-- priority, $12 its partition or null. $13 a position at which the task had an event when it was read: a removed task
-- has none (see migrations/00023_archive.sql).
-- Returns what append_required.sql returns. Waits for a concurrent append to the same task. Locks nothing else.
-- The xid is drawn before the position: see enqueue.sql.
insert into taskledger.event (version, attempt, shard, type, priority, partition, kind, biz_id, actor, data, meta)
values (case when pg_catalog.current_setting('taskledger.attempt', true) operator(pg_catalog.=) $7::pg_catalog.text
              and taskledger_internal.session_incarnation() operator(pg_catalog.=) $10::pg_catalog.text
              and (taskledger_internal.archived_until() operator(pg_catalog.<) $13::bigint
                   or taskledger_internal.still_has($1::pg_catalog.text, $2::pg_catalog.text, $13::bigint, $3::integer))
             then $3::integer operator(pg_catalog.+) 1 end,
        $8::integer, $9::integer, $14::pg_catalog.text::taskledger.event_type, $11::integer, $12::pg_catalog.text,
        $1::pg_catalog.text, $2::pg_catalog.text,
        coalesce($4::pg_catalog.text, session_user),
        $5::pg_catalog.text::pg_catalog.json, $6::pg_catalog.text::pg_catalog.json)
returning position, attempt, shard, type::pg_catalog.text, priority, coalesce(partition, ''), coalesce(order_key, ''),
          (pg_catalog.date_part('epoch', recorded_at) operator(pg_catalog.*) 1e6)::bigint, session_user,
          case when taskledger_internal.is_awaited() then taskledger_internal.wake() end
