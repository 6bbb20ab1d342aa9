-- All tasks as of a place, in key order.
-- $1 seen, $2 until, $3 after_position, $4 top of the place; $5 kind, or '' for all; $6 states (array literal, empty:
-- all); $7 kind and $8 biz_id after which to begin. Returns kind, biz_id, state, version, attempt, and the time of the
-- last event in microseconds.
-- Locks nothing. Reads all events up to $4, as count_as_of.sql, and sorts the tasks.
select t.kind, t.biz_id, t.state::text, t.version, t.attempt, (extract(epoch from t.updated_at) * 1e6)::bigint
  from (
    select h.kind, h.biz_id, (h.head >> 8)::integer as version, h.attempt, h.updated_at,
           taskledger.state_after((enum_range(null::taskledger.event_type))[h.head & 255]) as state
      from (
        select e.kind, e.biz_id, max(e.attempt) as attempt, max(e.recorded_at) as updated_at,
               max(e.version::bigint << 8 | case e.type
                 when 'enqueued' then 1 when 'scheduled' then 2 when 'lined_up' then 3
                 when 'released' then 4 when 'started' then 5 when 'progressed' then 6
                 when 'succeeded' then 7 when 'failed' then 8 when 'interrupted' then 9
                 when 'snoozed' then 10 when 'buried' then 11 when 'cancelled' then 12
                 when 'expired' then 13 when 'discarded' then 14 end) as head
          from taskledger.event e
         where e.position <= $4::bigint and ($5::text = '' or e.kind = $5::text)
           and (e.kind, e.biz_id) > ($7::text, $8::text)
           and taskledger_internal.feed_passed(e.xid, e.position, (select taskledger_internal.feed_floor()),
                                               (select $1::text::pg_snapshot),
                                               (select $2::text::pg_snapshot), $3::bigint)
         group by e.kind, e.biz_id) h
    offset 0) t
 where $6::text = '{}' or t.state = any($6::text::taskledger.task_state[])
 order by t.kind, t.biz_id
