-- Returns schedules by name, and the time.
-- $1 name, or '' for all. Locks nothing. Index: primary key, or reads the whole small table.
select s.name, s.kind, s.args::text, coalesce(s.cron, ''), coalesce(s.zone, ''), coalesce(s.every_ms, 0), s.anchor,
       coalesce(s.after_ms, 0), s.missed, s.missed_limit, s.overlap,
       s.paused, s.revision, s.actor, s.updated_at, s.next_at, s.last_at, coalesce(s.last_kind, ''),
       coalesce(s.last_biz_id, ''), s.passed, s.passed_at,
       clock_timestamp()
  from taskledger.schedule s
 where $1::text in ('', s.name)
 order by s.name
