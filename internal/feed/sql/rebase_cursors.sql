-- Puts the cursors of services before the first event, and the restored cursors of subscribers and of the seal before
-- the first event that they had not passed. A cursor of these that belongs to this database, but is ahead of the
-- events, begins at the first event. Older rows go, so that no reader returns to them. A reader that works with an
-- older row is superseded. The caller raises the floor afterwards: the arms are as in feed_lag, by
-- the transaction IDs and the floor of the other database, to which both cursors and events belong.
-- $1 seen, $2 seen_top, $3 seen_bound of the beginning. Locks all rows. Indexes of event: (xid, position), (position).
with newest as (
  select distinct on (c.reader) c.reader, c.n, c.seen, c.seen_top, c.seen_bound, c.until, c.bound, c.after_position,
         c.mark, c.login, starts_with(c.reader, 'subscriber/') or c.reader = 'seal' as is_subscriber,
         c.written_here as is_local,
         taskledger_internal.feed_floor() as floor
    from taskledger.cursors c
   order by c.reader, c.n desc
), gone as (
  delete from taskledger.cursor
), last as (
  select coalesce(max(e.position), 0) as position from taskledger.event e
), place as (
  select n.reader, n.n, n.is_subscriber, n.mark, n.login,
         case when n.is_subscriber and not n.is_local then coalesce(pending.position - 1, l.position) else 0 end
         as after_position, l.position as top
    from newest n
   cross join last l
   cross join lateral (
     select min(p.position) as position
       from (select late.position
               from taskledger_internal.late_xids(n.seen, n.seen_bound, n.seen_bound) x
              cross join lateral (
                select e.position
                  from taskledger.event e
                 where (e.xid, e.position) > (x, n.floor) and (e.xid, e.position) <= (x, n.seen_top)
                   and (n.until is null or e.position > n.after_position or not pg_visible_in_snapshot(x, n.until))
                 order by e.xid, e.position
                 limit 1) late
              union all
             select unseen.position
               from taskledger_internal.late_xids(n.until, n.bound, n.bound) x
              cross join lateral (
                select e.position
                  from taskledger.event e
                 where (e.xid, e.position) > (x, greatest(n.seen_top, n.floor))
                   and (e.xid, e.position) <= (x, n.after_position) and not pg_visible_in_snapshot(x, n.until)
                 order by e.xid, e.position
                 limit 1) unseen
              where n.until is not null
              union all
             (select e.position
                from taskledger.event e
               where e.position > greatest(n.seen_top, n.after_position)
               order by e.position
               limit 1)) p
      where n.is_subscriber and not n.is_local) pending
)
insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, until, top, bound, after_position, origin, mark,
                               login)
select p.reader, p.n + 1, $1::text::pg_snapshot, $2::bigint, $3::text::xid8,
       case when p.after_position > 0 then pg_current_snapshot() end, case when p.after_position > 0 then p.top end,
       case when p.after_position > 0 then pg_current_xact_id() end, p.after_position, taskledger_internal.origin(),
       case when p.is_subscriber then p.mark end, case when p.is_subscriber then p.login end
  from place p
