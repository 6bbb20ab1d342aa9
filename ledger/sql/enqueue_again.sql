-- Enqueues the next runs of finished tasks, and replaces the args of tasks that have not begun, by
-- taskledger_internal.enqueue_again.
-- $1 kinds, $2 biz_ids, $3 args, $4 metas, $5 actors ('' or null for session_user), $6 versions of the args' formats,
-- $7 microseconds after which the task is due, $8 due time, $9 deadline of the first attempt, $10 deadline of the task
-- (null if not set), $11 whether args are replaced, $12 priorities: text array literals of one length, sorted by key as
-- for enqueue_many.sql.
-- Returns a row for each task with a new event, or whose kind has too many waiting tasks: its number in the lists, from
-- 1, position, version and type of the event; and if position is 0, policy, waiting tasks, limit and delay of the kind.
-- Waits for concurrent transactions that append to the same tasks. Locks nothing else. Indexes: primary key, event_run.
select w.i, coalesce(a.position, 0), coalesce(a.version, 0), coalesce(a.type::text, ''),
       coalesce(o.policy, ''), coalesce(o.waiting, 0), coalesce(o.max_waiting, 0), coalesce(o.retry_after_ms, 0)
  from unnest($1::text::text[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[],
              $6::text::integer[], $7::text::bigint[], $8::text::timestamptz[], $9::text::timestamptz[],
              $10::text::timestamptz[], $11::text::boolean[], $12::text::integer[])
       with ordinality as w(kind, biz_id, args, meta, actor, data_version, run_after, run_at, start_by, finish_by,
                            replaces, priority, i)
 cross join lateral taskledger_internal.enqueue_again(
   w.kind, w.biz_id, w.replaces, w.args, w.meta, w.actor, w.data_version, w.priority, w.run_after, w.run_at, w.start_by,
   w.finish_by) a
  left join taskledger.overload o on a.is_full and o.kind = w.kind
 where a.position is not null or a.is_full
