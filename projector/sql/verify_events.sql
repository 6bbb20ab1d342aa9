-- The events that the projection has applied, in key order, a batch at a time.
-- $1 reader; $2 kind and $3 biz_id of the task to continue after; $4 maximum number of events.
-- Returns the columns that the fold of a projected task and its statistics need.
-- Locks nothing. Index: primary key. The time is exact until the year 2255, and costs less than extract.
with newest as materialized (
  select c.seen, c.until, c.after_position
    from taskledger.cursors c
   where c.reader = $1::text
   order by c.n desc
   limit 1
)
select e.kind, e.biz_id, e.version, e.attempt, e.shard::integer, e.type::text,
       (date_part('epoch', e.recorded_at) * 1e6)::bigint,
       case when e.type in ('started', 'progressed', 'succeeded', 'failed', 'buried', 'snoozed', 'interrupted',
                            'discarded')
                 or e.type = 'scheduled' and e.version > 1 and e.run is null
            then e.data::text end,
       case when e.version = 1 or e.run is not null then e.meta::text end, e.data_version, e.priority,
       coalesce(e.partition, ''), coalesce(e.run, 0), e.position
  from taskledger.event e
 cross join newest c
 where (e.kind, e.biz_id) > ($2::text, $3::text)
   and taskledger_internal.feed_passed(e.xid, e.position, (select taskledger_internal.feed_floor()), c.seen, c.until,
                                       c.after_position)
 order by e.kind, e.biz_id, e.version
 limit $4::integer
