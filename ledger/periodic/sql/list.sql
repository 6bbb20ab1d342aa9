-- Returns schedules by name, and the time.
-- $1 name, or '' for all; $2 the name after which the list begins, '' for the first one; $3 most schedules.
-- Locks nothing. Index: primary key.
select s.name, s.kind, s.args::text, coalesce(s.cron, ''), coalesce(s.zone, ''), coalesce(s.every_ms, 0),
       (extract(epoch from s.anchor) * 1e6)::bigint, coalesce(s.fixed_delay_ms, 0), s.missed, s.missed_limit,
       s.overlap, (extract(epoch from s.paused_at) * 1e6)::bigint, coalesce(s.paused_by, ''),
       coalesce(s.pause_reason, ''), s.revision, s.actor, (extract(epoch from s.updated_at) * 1e6)::bigint,
       (extract(epoch from s.next_at) * 1e6)::bigint, (extract(epoch from s.last_at) * 1e6)::bigint,
       coalesce(s.last_kind, ''), coalesce(s.last_biz_id, ''), s.passed,
       (extract(epoch from s.passed_at) * 1e6)::bigint,
       (extract(epoch from clock_timestamp()) * 1e6)::bigint
  from taskledger.schedule s
 where $1::text in ('', s.name) and s.name > $2::text
 order by s.name
 limit $3::bigint
