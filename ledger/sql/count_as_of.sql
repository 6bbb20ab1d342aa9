-- Counts the tasks of each kind and state as of a place, by their last events up to there.
-- $1 seen, $2 until, $3 after_position, $4 top of the place; $5 kind, or '' for all.
-- Locks nothing. Reads all events up to $4, or the kind's events by the primary key. It aggregates numbers, so that
-- workers of a parallel plan share it, and nothing is sorted. The subqueries make the server parse the snapshots once.
select t.kind, taskledger.state_after((enum_range(null::taskledger.event_type))[t.head & 255])::text, count(*)
  from (
    select e.kind, e.biz_id,
           max(e.version::bigint << 8 | case e.type
             when 'enqueued' then 1 when 'scheduled' then 2 when 'lined_up' then 3 when 'released' then 4
             when 'started' then 5 when 'progressed' then 6 when 'succeeded' then 7 when 'failed' then 8
             when 'interrupted' then 9 when 'snoozed' then 10 when 'buried' then 11 when 'cancelled' then 12
             when 'expired' then 13 when 'discarded' then 14 end) as head
      from taskledger.event e
     where e.position <= $4::bigint and ($5::text = '' or e.kind = $5::text)
       and taskledger_internal.feed_passed(e.xid, e.position, (select taskledger_internal.feed_floor()),
                                           (select $1::text::pg_snapshot), (select $2::text::pg_snapshot), $3::bigint)
     group by e.kind, e.biz_id) t
 group by 1, 2
 order by 1, 2
