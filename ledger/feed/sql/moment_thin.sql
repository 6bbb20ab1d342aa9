-- Thins the moments that are older than an hour: of each minute it keeps the first and the last. So a longer time
-- without commits keeps both its ends. Returns the time, in microseconds since 1970, at which to begin the next time.
-- $1 time in microseconds since 1970 at which to begin; 0: a day ago.
-- Deletes rows that no other transaction locks. Index: primary key, from $1 on.
with old as materialized (
  select m.at, date_trunc('minute', m.at) as minute,
         date_trunc('minute', lag(m.at) over (order by m.at)) as minute_before,
         date_trunc('minute', lead(m.at) over (order by m.at)) as minute_after
    from taskledger.moment m
   where m.at >= case when $1::bigint = 0 then clock_timestamp() - interval '25 hours'
                      else timestamptz 'epoch' + $1::bigint * interval '1 microsecond' end
     and m.at < date_trunc('minute', clock_timestamp() - interval '1 hour')
), gone as (
  delete from taskledger.moment m
   using old o
   where m.at = o.at and o.minute = o.minute_before and o.minute = o.minute_after
)
select coalesce((extract(epoch from max(o.minute)) * 1e6)::bigint, $1::bigint) from old o
