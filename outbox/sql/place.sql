-- Selects the cursor row at which the relay continues after the stream has lost messages: the newest row whose messages
-- are all on the stream. Without such a row, the oldest row that is not older than the stream keeps messages, and after
-- which the relay has passed at most $4 positions; else the newest row.
-- $1 time of creation of the stream, $2 its last sequence, $3 maximum age of messages in milliseconds, 0 for none,
-- $4 positions.
-- Returns n, and whether all messages before the row are on the stream. Locks nothing. Index: primary key of cursor.
select r.n, r.is_covered
  from (
   (select m.n, 1 as preference, true as is_covered
      from taskledger_internal.relay_mark m
     where m.stream_created = $1::text and m.stream_seq <= $2::bigint
     order by m.n desc
     limit 1)
    union all
   (select m.n, 2, false
      from taskledger_internal.relay_mark m
     where m.top >= (select l.top from taskledger_internal.relay_mark l order by l.n desc limit 1) - $4::bigint
       and ($3::bigint = 0 or m.recorded_at > clock_timestamp() - $3::bigint * interval '1 millisecond')
     order by m.n
     limit 1)
    union all
   (select m.n, 3, false
      from taskledger_internal.relay_mark m
     order by m.n desc
     limit 1)) r
 order by r.preference
 limit 1
