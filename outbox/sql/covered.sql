-- Selects the cursor row from which to publish again after a loss: the newest row before which all messages
-- are still on the stream, or reached their maximum age. Without such a row, the oldest one.
-- $1 generation, $2 time of creation of the stream, $3 first sequence that may be missing,
-- $4 maximum age of messages in milliseconds, 0 for none.
-- Returns n, and whether all messages before the row are still on the stream. Locks nothing.
-- Index: primary key.
select r.n, r.is_covered
  from (
   (select m.n, 1 as preference, m.stream_created = $2::text and m.stream_seq < $3::bigint as is_covered
      from taskledger.relay_mark m
     where m.generation = $1::integer
       and (m.stream_created = $2::text and m.stream_seq < $3::bigint
         or $4::bigint > 0 and m.recorded_at < clock_timestamp() - $4::bigint * interval '1 millisecond')
     order by m.n desc
     limit 1)
    union all
   (select m.n, 2, false
      from taskledger.relay_mark m
     order by m.n
     limit 1)) r
 order by r.preference
 limit 1
