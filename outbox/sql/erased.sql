-- Selects the tasks of an erasure, and where the stream has their events: after the first sequence, up to the second. A
-- row of the relay's cursor that is older than a task's first event was written before its first message, and a row
-- that has passed the last event was written after its last message. $1 the erasure's id, $2 when the stream was
-- created. Locks nothing. Indexes: erasure_id, primary keys of cursor and event.
select x.kind, x.biz_id, x.shard, x.until, coalesce(before.tail, 0), coalesce(passed.seq, 9223372036854775807)
  from taskledger.erasures x
  left join lateral (
    select m.stream_tail as tail
      from taskledger_internal.relay_mark m
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
      join taskledger_internal.relay_mark m on m.n = c.n and m.stream_created = $2::text
     where e.kind = x.kind and e.biz_id = x.biz_id and e.position = x.until
     order by m.n
     limit 1) passed on true
 where x.id = $1::text::uuid
 order by x.kind, x.biz_id
