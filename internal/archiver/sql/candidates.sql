-- The tasks that a run may remove, among the next events.
-- $1 run, $2 kinds (array literal; null: all but reserved ones), $3 kinds that stay (array literal), $4 how much longer
-- subscribers and the relay hold a task, in microseconds, $5 position after which to read, $6 number of events.
-- Returns how many events were read, position and time of the last one (null: none), how many tasks readers of the feed
-- hold, one of these readers, the earliest end of these tasks in microseconds since 1970 (null: none), and kind, biz_id
-- and last version of each task; without a task, one row with version 0.
-- Locks nothing. Indexes: as taskledger_internal.archivable.
select a.events::bigint, a.last, (date_part('epoch', a.last_at) * 1e6)::bigint, a.held::bigint,
       coalesce(a.held_by, ''), (date_part('epoch', a.held_since) * 1e6)::bigint, coalesce(t.kind, ''),
       coalesce(t.biz_id, ''), coalesce(t.version, 0)::bigint
  from taskledger_internal.archivable($1::bigint::integer, $2::text::text[], $3::text::text[],
                                      $4::bigint * interval '1 microsecond', $5::bigint, $6::bigint::integer) a
  left join lateral unnest(a.task_kinds, a.biz_ids, a.versions) t(kind, biz_id, version) on true
