-- Locks and returns the schedule that has been due longest, and the time.
-- $1 microseconds added to the clock (0 except in tests), $2 names of schedules to leave out (text array literal).
-- Locks that row, and skips rows that are locked. Reads the whole small table.
select s.name, s.kind, s.args::text, coalesce(s.cron, ''), coalesce(s.zone, ''), coalesce(s.every_ms, 0),
       (extract(epoch from s.anchor) * 1e6)::bigint, coalesce(s.fixed_delay_ms, 0), s.missed, s.missed_limit,
       s.overlap, (extract(epoch from s.paused_at) * 1e6)::bigint, coalesce(s.paused_by, ''),
       coalesce(s.pause_reason, ''), s.revision, s.actor, (extract(epoch from s.updated_at) * 1e6)::bigint,
       (extract(epoch from s.next_at) * 1e6)::bigint, (extract(epoch from s.last_at) * 1e6)::bigint,
       coalesce(s.last_kind, ''), coalesce(s.last_biz_id, ''), s.passed,
       (extract(epoch from s.passed_at) * 1e6)::bigint,
       (extract(epoch from clock_timestamp()) * 1e6)::bigint + $1::bigint
  from taskledger.schedule s
 where s.paused_at is null and s.next_at <= clock_timestamp() + $1::bigint * interval '1 microsecond'
   and s.name <> all ($2::text::text[])
 order by s.next_at
 limit 1
   for update skip locked
