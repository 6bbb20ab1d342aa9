-- The statistics of all kinds together, or of each of some kinds, in steps of whole hours, without histograms.
-- $1 time from which and $2 time before which hours begin, both whole hours; $3 length of a step in seconds, a multiple
-- of 3600. $4 kinds: a text array literal, or null for all.
-- Locks nothing. Index: kind_hour_hour: of all kinds a range, of given kinds each hour alone.
select (extract(epoch from r.step) * 1e6)::bigint, r.kind, r.enqueued, r.started, r.succeeded, r.failed, r.dead,
       r.cancelled
  from (
   select date_bin(make_interval(secs => $3::bigint), s.hour, 'epoch'::timestamptz) as step, s.kind,
          sum(s.enqueued)::bigint as enqueued, sum(s.started)::bigint as started, sum(s.succeeded)::bigint as succeeded,
          sum(s.failed)::bigint as failed, sum(s.dead)::bigint as dead, sum(s.cancelled)::bigint as cancelled
     from (
      select a.hour, '' as kind, a.enqueued, a.started, a.succeeded, a.failed, a.dead, a.cancelled
        from taskledger.kind_hour a
       where $4::text is null
         and a.hour >= $1::text::timestamptz and a.hour < $2::text::timestamptz
       union all
      select o.hour, k.kind, o.enqueued, o.started, o.succeeded, o.failed, o.dead, o.cancelled
        from unnest($4::text::text[]) k(kind)
       cross join generate_series($1::text::timestamptz, $2::text::timestamptz - interval '1 hour',
                                  interval '1 hour') h(hour)
       cross join lateral (
         select f.hour, f.enqueued, f.started, f.succeeded, f.failed, f.dead, f.cancelled
           from taskledger.kind_hour f
          where f.hour = h.hour and f.kind = k.kind
         offset 0) o) s
    group by 1, 2) r
 order by r.step, r.kind
