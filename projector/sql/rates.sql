-- The statistics of each kind in steps of time, without histograms.
-- $1 time from which and $2 time before which minutes begin, $3 length of a step in seconds, a multiple of 60.
-- Locks nothing. Index: kind_stats_minute.
select s.kind, floor(extract(epoch from s.minute) / $3::bigint)::bigint * $3::bigint * 1000000 as step,
       sum(s.enqueued)::bigint, sum(s.started)::bigint, sum(s.succeeded)::bigint, sum(s.failed)::bigint,
       sum(s.dead)::bigint, sum(s.cancelled)::bigint
  from taskledger.kind_stats s
 where s.minute >= $1::text::timestamptz and s.minute < $2::text::timestamptz
 group by s.kind, step
 order by step, s.kind
