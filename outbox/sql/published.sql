-- Selects the greatest age, in milliseconds, that a message can have: that of the oldest cursor row whose mark
-- includes its sequence, or else of the newest row.
-- $1 time of creation of the stream, $2 sequence. Locks nothing. Index: primary key.
select floor(extract(epoch from clock_timestamp() - r.recorded_at) * 1000)::bigint
  from (
   (select m.recorded_at, 1 as preference
      from taskledger.relay_mark m
     where m.stream_created = $1::text and m.stream_seq >= $2::bigint
     order by m.n
     limit 1)
    union all
   (select m.recorded_at, 2
      from taskledger.relay_mark m
     order by m.n desc
     limit 1)) r
 order by r.preference
 limit 1
