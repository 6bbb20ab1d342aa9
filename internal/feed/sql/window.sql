-- Opens a window: the events visible now and not in $1. It reads three values, in this order: until, the snapshot; top,
-- the last position drawn; bound, an xid newer than both. It also returns the incarnation of the database (the
-- arguments are meaningless in another incarnation) and the time, in microseconds. Bound is null if no further event
-- can have become visible, so that an idle poll draws no xid. Otherwise the window's first page follows, as page.sql
-- returns it: the snapshot of this statement is until. Only the first row contains the texts of the edge; without
-- events there is one row, whose position is 0.
-- $1 seen (pg_snapshot), $2 seen_top, $3 seen_bound (xid8) of the previous window; $4 maximum number of rows; $5 for
-- how many microseconds from now on wake notifies the reader; below 0, not any more; 0 for another reader.
-- Unless it is 0, it returns whether a process waits for outcomes.
-- The caller fails if is_standby (its snapshot lists no running transactions) or has_xid (bound would be older than
-- top). top comes from the sequence and not from the rows, so that rows that are not visible yet are stepped over once
-- and not at every poll.
-- Locks nothing. Indexes: as page.sql. No part of it is a CTE: each one would cost as much as reading an event. The
-- parameters are columns of a subquery: as constants they would make each plan seem cheaper than the generic plan, and
-- PostgreSQL would plan the statement at each execution, for as long as it takes to execute.
select o.is_standby, o.has_xid, o.top,
       case when coalesce(e.ordinality, 1) = 1 then o.incarnation end,
       case when coalesce(e.ordinality, 1) = 1 then o.until::text end,
       case when coalesce(e.ordinality, 1) = 1 then o.bound::text end,
       case
         when o.notified = 0 or coalesce(e.ordinality, 1) > 1 or o.is_standby then null
         when o.notified > 0
         then setval('taskledger.asleep_until', (date_part('epoch', clock_timestamp()) * 1e6)::bigint + o.notified)
         when pg_sequence_last_value('taskledger.asleep_until'::regclass) > date_part('epoch', clock_timestamp()) * 1e6
         then setval('taskledger.asleep_until', 1)
       end,
       case
         when o.notified <> 0 and coalesce(e.ordinality, 1) = 1
         then pg_sequence_last_value('taskledger.awaited_until'::regclass) > date_part('epoch', clock_timestamp()) * 1e6
       end,
       case when coalesce(e.ordinality, 1) = 1 then (date_part('epoch', statement_timestamp()) * 1e6)::bigint end,
       coalesce(e.login_id, 0), coalesce(e.position, 0), coalesce(e.version, 0), coalesce(e.attempt, 0),
       coalesce(e.shard, 0), coalesce(e.type::text, ''), (date_part('epoch', e.recorded_at) * 1e6)::bigint,
       coalesce(e.kind, ''), coalesce(e.biz_id, ''), coalesce(e.actor, ''), '', coalesce(e.data_version, 0),
       coalesce(e.priority, 0), coalesce(e.partition, ''), coalesce(e.run, 0), coalesce(e.order_key, ''), e.data::text,
       e.meta::text
  from (
   select d.is_standby, d.has_xid, coalesce(taskledger_internal.incarnation(), '') as incarnation, d.until, d.top,
          d.seen, d.seen_top, d.seen_bound, d.notified,
          case
            when d.is_standby or d.has_xid then null
            when d.top > d.seen_top
              or exists (select from pg_snapshot_xip(d.seen) x where pg_visible_in_snapshot(x, d.until))
              or exists (select from generate_series(pg_snapshot_xmax(d.seen)::text::bigint,
                                                     d.seen_bound::text::bigint - 1) x
                          where pg_visible_in_snapshot(x::text::xid8, d.until)) then pg_current_xact_id()
          end as bound
     from (
      select pg_current_snapshot() as until,
             pg_is_in_recovery() as is_standby,
             pg_current_xact_id_if_assigned() is not null as has_xid,
             coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0) as top,
             $1::text::pg_snapshot as seen, $2::bigint as seen_top, $3::text::xid8 as seen_bound, $5::bigint as notified
      offset 0) d
   offset 0) o
  left join lateral taskledger_internal.feed_page(o.seen, o.seen_top, o.seen_bound,
                                                  case when o.bound is not null then o.until end, o.top, 0, $4::integer)
       with ordinality e on true
