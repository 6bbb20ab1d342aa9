-- Selects the cursor row from which to publish again after a loss: the newest row before which all messages
-- are still on the stream, or reached their maximum age. Without such a row, the oldest one.
-- $1 generation, $2 time of creation of the stream, $3 first sequence that may be missing,
-- $4 maximum age of messages in milliseconds, 0 for none.
-- Returns n, and the position up to which the row may have published an event. Locks nothing.
-- Index: primary key.
select r.n, greatest(r.seen_top, r.after_position)
  from (
   (select c.n, c.seen_top, c.after_position, 1 as preference
      from taskledger.cursor c
     where c.reader = 'relay'
       and (c.mark->>'generation')::integer = $1::integer
       and (c.mark->>'stream_created' = $2::text and (c.mark->>'stream_seq')::bigint < $3::bigint
         or $4::bigint > 0 and c.recorded_at < clock_timestamp() - $4::bigint * interval '1 millisecond')
     order by c.n desc
     limit 1)
    union all
   (select c.n, c.seen_top, c.after_position, 2
      from taskledger.cursor c
     where c.reader = 'relay'
     order by c.n
     limit 1)) r
 order by r.preference
 limit 1
