-- The tasks of an erasure, and between which messages of the stream their events are: behind the first sequence, and
-- up to the second. A row of the relay's cursor that is older than an event has no message of it. If the row has passed
-- the last event, no later message is of the task.
-- $1 id of the erasure, $2 time of creation of the stream. Locks nothing. Indexes: erasure_id, primary keys of cursor
-- and event.
select x.kind, x.biz_id, x.shard, x.until, coalesce(before.tail, 0), coalesce(passed.seq, 9223372036854775807)
  from taskledger.erasures x
  left join lateral (
    select m.stream_tail as tail
      from taskledger.relay_mark m
     where m.stream_created = $2::text and m.recorded_at < x.first_at
     order by m.n desc
     limit 1) before on true
  left join lateral (
    select m.stream_seq as seq
      from taskledger.event e
      join taskledger.cursors c
        on c.reader = 'relay' and c.is_local
       and taskledger_internal.feed_passed(e.xid, e.position, taskledger_internal.feed_floor(), c.seen, c.until,
                                           c.after_position)
      join taskledger.relay_mark m on m.n = c.n and m.stream_created = $2::text
     where e.kind = x.kind and e.biz_id = x.biz_id and e.position = x.until
     order by m.n
     limit 1) passed on true
 where x.id = $1::text::uuid
 order by x.kind, x.biz_id
