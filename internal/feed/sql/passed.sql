-- Reports whether a reader has passed the event at a position.
-- $1 reader, $2 position. Returns one row, or none if there is no event at the position. A reader without a cursor in
-- this database has passed none.
-- Locks nothing. Indexes: (position) of event, primary key of cursor.
select coalesce(taskledger_internal.feed_passed(e.xid, e.position, (select taskledger_internal.feed_floor()), c.seen,
                                                c.until, c.after_position), false)
  from taskledger.event e
  left join lateral (
   select n.seen, n.until, n.after_position, n.is_local
     from taskledger.cursors n
    where n.reader = $1::text
    order by n.n desc
    limit 1) c on c.is_local
 where e.position = $2::bigint
