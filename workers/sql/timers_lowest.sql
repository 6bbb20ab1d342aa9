-- The first timer from a point of the index on.
-- $1 where to start, $2 keys, kind/biz_id, that are stepped over (text array literal).
-- Answers one row: the database's clock, the oldest transaction id that is still running in this snapshot,
-- and the timer's due_at, kind and biz_id, or nulls. What was removed from the index since it was last
-- vacuumed is stepped over one by one: the cost is that.
-- Locks nothing. Index: primary key, see timers_fire.sql.
select clock_timestamp(), pg_snapshot_xmin(pg_current_snapshot())::text, t.due_at, t.kind, t.biz_id
  from (values (true)) one
  left join lateral (
    select x.due_at, x.kind, x.biz_id
      from taskledger.timer x
     where x.due_at >= $1::text::timestamptz and x.kind || '/' || x.biz_id <> all ($2::text::text[])
     order by x.due_at, x.kind, x.biz_id, x.version, x.reason
     limit 1) t on true
