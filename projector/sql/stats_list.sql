-- The statistics of a kind by minute, several rows for each.
-- $1 kind or '', $2 time from which and $3 time before which minutes begin. Locks nothing. Index: kind_stats_minute.
select s.kind, (extract(epoch from s.minute) * 1e6)::bigint, s.enqueued, s.started, s.succeeded, s.failed, s.dead,
       s.cancelled, coalesce(to_json(s.waiting)::text, 'null'), coalesce(to_json(s.running)::text, 'null')
  from taskledger.kind_stats s
 where s.minute >= $2::text::timestamptz and s.minute < $3::text::timestamptz and ($1::text = '' or s.kind = $1::text)
 order by s.minute, s.kind
