-- Counts the events that the relay has not published, and selects when the oldest of them was recorded and its
-- age in milliseconds. The set is that of the view taskledger.outbox. The cost is that of the events counted,
-- whatever the size of the ledger. Without a cursor of this database, all events wait.
-- $1 greatest count of each arm. Locks nothing.
-- Indexes: (xid, position) for each xid that was under way at an edge of the window, (position) for the rest.
-- Comparing rows, not columns, leaves the planner no other index.
with relay as materialized (
  select c.seen, c.seen_top, c.seen_bound, c.until, c.bound, c.after_position
    from (select n.*, n.xmin from taskledger.cursor n where n.reader = 'relay' order by n.n desc limit 1) c
   where c.origin = taskledger.origin() or c.xmin::text::bigint = (c.xid::text::numeric % 4294967296)::bigint)
select count(*), (extract(epoch from min(w.recorded_at)) * 1e6)::bigint,
       coalesce(floor(extract(epoch from clock_timestamp() - min(w.recorded_at)) * 1000), 0)::bigint
  from (
   -- committed late: drawn before the window's lower edge
   (select l.recorded_at
      from relay r
     cross join lateral taskledger.late_xids(r.seen, r.seen_bound) x
     cross join lateral (
       select e.recorded_at from taskledger.event e
        where (e.xid, e.position) > (x, 0) and (e.xid, e.position) <= (x, r.seen_top)
          and (r.until is null or e.position > r.after_position or not pg_visible_in_snapshot(x, r.until))
        order by e.xid, e.position
        limit $1::integer) l
     limit $1::integer)
    union all
   -- drawn within the part of the window that is published, and not visible in it
   (select l.recorded_at
      from relay r
     cross join lateral taskledger.late_xids(r.until, r.bound) x
     cross join lateral (
       select e.recorded_at from taskledger.event e
        where (e.xid, e.position) > (x, r.seen_top) and (e.xid, e.position) <= (x, r.after_position)
          and not pg_visible_in_snapshot(x, r.until)
        order by e.xid, e.position
        limit $1::integer) l
     where r.until is not null
     limit $1::integer)
    union all
   -- drawn since
   (select e.recorded_at
      from taskledger.event e
     where e.position > coalesce((
           select case when r.until is null then r.seen_top else greatest(r.seen_top, r.after_position) end
             from relay r), 0)
     order by e.position
     limit $1::integer)) w
