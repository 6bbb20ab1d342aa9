-- The kinds that discard their oldest tasks and of which too many wait, as the projector has counted,
-- with how far it had got then: what is visible in seen, and of what is visible in until everything up
-- to after_position.
-- Answers nothing if its cursor is of another database, or while there is no incarnation (see
-- taskledger.incarnation), without which transaction ids mean nothing.
-- Locks nothing. Reads the small table of limits; counts and cursor are one row each of their keys.
select o.kind, o.waiting, o.max_waiting, c.n, c.seen::text, c.seen_top, c.seen_bound::text, coalesce(c.until::text, ''),
       c.after_position, taskledger.incarnation()
  from taskledger.overload o
 cross join lateral (
   select n.n, n.seen, n.seen_top, n.seen_bound, n.until, n.after_position, n.origin, n.xid, n.xmin
     from taskledger.cursor n
    where n.reader = 'projector'
    order by n.n desc
    limit 1) c
 where o.policy = 'discard_oldest' and o.waiting > o.max_waiting and taskledger.incarnation() is not null
   and (c.origin = taskledger.origin() or c.xmin::text::bigint = (c.xid::text::numeric % 4294967296)::bigint)
