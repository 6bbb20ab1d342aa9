-- Those of some events that the sealer has passed and not sealed: position, kind, biz_id, version.
-- $1 positions (array literal). Locks nothing. Indexes: (position), those of taskledger.sealed_leaf.
select e.position, e.kind, e.biz_id, e.version
  from (
   select c.seen, c.until, c.after_position, taskledger.feed_floor() as floor
     from taskledger.cursors c
    where c.reader = 'seal'
    order by c.n desc
    limit 1) c
 cross join unnest($1::text::bigint[]) p(position)
 cross join lateral (select n.* from taskledger.event n where n.position = p.position limit 1) e
 where taskledger.feed_passed(e.xid, e.position, c.floor, c.seen, c.until, c.after_position)
   and not exists (select from taskledger.sealed_leaf(e.position))
 order by e.position
