-- The statistics of all kinds together, or of each of some kinds, in steps of time, without histograms.
-- $1 time from which and $2 time before which minutes begin, $3 length of a step in seconds, a multiple of 60.
-- $4 kinds: a text array literal, or null for all.
-- Locks nothing. Index: kind_stats_minute. The rows are sorted after they are summed: a day of 100 kinds has 144,000.
select (extract(epoch from r.step) * 1e6)::bigint, r.kind, r.enqueued, r.started, r.succeeded, r.failed, r.dead,
       r.cancelled
  from (
   select date_bin(make_interval(secs => $3::bigint), s.minute, 'epoch'::timestamptz) as step,
          case when $4::text is null then '' else s.kind end as kind,
          sum(s.enqueued)::bigint as enqueued, sum(s.started)::bigint as started, sum(s.succeeded)::bigint as succeeded,
          sum(s.failed)::bigint as failed, sum(s.dead)::bigint as dead, sum(s.cancelled)::bigint as cancelled
     from taskledger.kind_stats s
    where s.minute >= $1::text::timestamptz and s.minute < $2::text::timestamptz
      and ($4::text is null or s.kind in (select k.kind from unnest($4::text::text[]) k(kind)))
    group by 1, 2) r
 order by r.step, r.kind
