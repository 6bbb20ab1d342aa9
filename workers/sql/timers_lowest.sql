-- The first timer from a point of the index on, and the first of those that are not set aside.
-- $1 where to start, $2 keys, kind/biz_id, that are set aside (text array literal).
-- Answers one row: the database's clock, the oldest transaction id that is still running in this snapshot,
-- and due_at of the two timers, or nulls. What was removed from the index since it was last vacuumed is
-- stepped over one by one: the cost is that.
-- Locks nothing. Index: primary key, see timers_fire.sql.
select clock_timestamp(), pg_snapshot_xmin(pg_current_snapshot())::text, lowest.due_at, free.due_at
  from (values (true)) one
  left join lateral (
    select x.due_at
      from taskledger.timer x
     where x.due_at >= $1::text::timestamptz
     order by x.due_at, x.kind, x.biz_id, x.version, x.reason
     limit 1) lowest on true
  left join lateral (
    select x.due_at
      from taskledger.timer x
     where x.due_at >= lowest.due_at and x.kind || '/' || x.biz_id not in (select unnest($2::text::text[]))
     order by x.due_at, x.kind, x.biz_id, x.version, x.reason
     limit 1) free on true
