-- The kinds whose limit discards the oldest tasks and that have too many waiting tasks, by the projector's count, and
-- the projector's place at that count: the columns of its newest cursor row that place a reader.
-- Returns no row if the cursor was written in another database, or while the table taskledger.incarnation is
-- empty, without which transaction IDs mean nothing.
-- Locks nothing. Reads the small table of limits; indexes: primary keys of counts and cursor, one row each.
select o.kind, o.waiting, o.max_waiting, c.n, c.seen::text, c.seen_top, c.seen_bound::text, coalesce(c.until::text, ''),
       coalesce(c.top, 0), coalesce(c.bound::text, ''), c.after_position, taskledger_internal.incarnation()
  from taskledger.overload o
 cross join lateral (
   select n.*
     from taskledger.cursors n
    where n.reader = 'projector'
    order by n.n desc
    limit 1) c
 where o.policy = 'discard_oldest' and o.waiting > o.max_waiting and taskledger_internal.incarnation() is not null
   and c.is_local
