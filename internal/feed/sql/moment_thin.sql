-- Thins old moments, see thin_moments. Returns the time, in microseconds since 1970, to begin at the next
-- time.
-- $1 time in microseconds since 1970 at which to begin; 0: a day ago.
-- Deletes rows that no other transaction locks. Index: primary key of moment, from $1 on.
select (extract(epoch from taskledger_internal.thin_moments(
          case when $1::bigint = 0 then clock_timestamp() - interval '25 hours'
               else timestamptz 'epoch' + $1::bigint * interval '1 microsecond' end)) * 1e6)::bigint
