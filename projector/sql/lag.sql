-- How many committed events a reader has not dealt with, and the oldest of them.
-- $1 reader, $2 where counting ends. A reader without a cursor, or with one of another database,
-- has dealt with none.
--
-- With no window open, everything visible in seen is done: what is left was drawn before seen by
-- transactions then unfinished (late), or later (tail). Of an open window, everything up to
-- after_position is done as well, but for what until does not see (later).
--
-- Locks nothing. Indexes: (xid, position) for each late xid, (position) for the tail; each arm
-- ends after $2 rows. Comparing rows, and not columns, leaves the planner no other index to walk.
with newest as materialized (
  select c.seen, c.seen_top, c.seen_bound, c.until, c.bound, c.after_position
    from (select n.*, n.xmin from taskledger.cursor n where n.reader = $1::text order by n.n desc limit 1) c
   where c.origin = taskledger.origin() or c.xmin::text::bigint = (c.xid::text::numeric % 4294967296)::bigint
), waiting as (
  (select e.position, e.recorded_at
     from newest c
    cross join lateral taskledger.late_xids(c.seen, c.seen_bound) x
    cross join lateral (
      select l.position, l.recorded_at from taskledger.event l
       where (l.xid, l.position) > (x, 0) and (l.xid, l.position) <= (x, c.seen_top)
         and (c.until is null or l.position > c.after_position or not pg_visible_in_snapshot(x, c.until))
       order by l.xid, l.position
       limit $2::integer) e
    limit $2::integer)
  union all
  (select e.position, e.recorded_at
     from newest c
    cross join lateral taskledger.late_xids(c.until, c.bound) x
    cross join lateral (
      select l.position, l.recorded_at from taskledger.event l
       where (l.xid, l.position) > (x, c.seen_top) and (l.xid, l.position) <= (x, c.after_position)
       order by l.xid, l.position
       limit $2::integer) e
    where c.until is not null and not pg_visible_in_snapshot(x, c.until)
    limit $2::integer)
  union all
  (select e.position, e.recorded_at
     from taskledger.event e
    where e.position > coalesce((select greatest(c.seen_top, c.after_position) from newest c), 0)
    order by e.position
    limit $2::integer)
)
select count(*), (extract(epoch from min(w.recorded_at)) * 1e6)::bigint, coalesce(extract(epoch from clock_timestamp() - min(w.recorded_at)) * 1e6, 0)::bigint
  from (select w.recorded_at from waiting w limit $2::integer) w
