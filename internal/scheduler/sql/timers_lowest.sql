-- The first timer from a point of the index on, and the first timer from there whose task is not deferred.
-- $1 moment at which to start, $2 keys (kind/biz_id) of the deferred tasks (text array literal), $3 1 to look for kinds
-- above their limit, else 0.
-- Returns one row: the run of the server and the view's OID, which differ after a fail-over or a restore; the
-- database's clock, the oldest transaction ID still running in this snapshot, and due_at of the two timers, or nulls;
-- a time before 1970 as 1970, one after 9998 as 9999; whether tasks wait for predecessors, and whether overloads.sql
-- may return a kind. It steps over each entry that was removed from the index since the last vacuum, which is most of
-- its cost.
-- Locks nothing. Index: primary key of timer, at its low and its high end, see settings.sql; the small table of limits
-- with one row of counts each.
select (extract(epoch from pg_postmaster_start_time()) * 1e6)::bigint || '/' || 'taskledger.timers'::regclass::oid,
       (extract(epoch from clock_timestamp()) * 1e6)::bigint, pg_snapshot_xmin(pg_current_snapshot())::text,
       (extract(epoch from lowest.shown) * 1e6)::bigint, (extract(epoch from free.shown) * 1e6)::bigint,
       exists (select from taskledger.timers w
                where w.due_at = taskledger_internal.end_of_time() and w.reason = 'after'),
       (select $3::integer) = 1 and exists (
         select from taskledger.overload o where o.policy = 'discard_oldest' and o.waiting > o.max_waiting)
  from (values (true)) one
  left join lateral (
    select x.due_at, greatest('1970-01-01 00:00:00+00', least(x.due_at, '9999-01-01 00:00:00+00')) as shown
      from taskledger.timers x
     where x.due_at >= (select $1::text::timestamptz)
     order by x.due_at, x.kind, x.biz_id, x.version, x.reason
     limit 1) lowest on true
  left join lateral (
    select greatest('1970-01-01 00:00:00+00', least(x.due_at, '9999-01-01 00:00:00+00')) as shown
      from taskledger.timers x
     where x.due_at >= lowest.due_at and x.kind || '/' || x.biz_id not in (select unnest((select $2::text::text[])))
     order by x.due_at, x.kind, x.biz_id, x.version, x.reason
     limit 1) free on true
