-- The events at some positions that are not sealed: position, kind, biz_id, version, and whether no sealer will seal
-- it. The sealer has passed such an event, or its transaction ID is not visible as committed to this statement.
-- $1 positions (array literal). Locks nothing. Indexes: (position), as taskledger_internal.sealed_leaf.
select e.position, e.kind, e.biz_id, e.version,
       coalesce(taskledger_internal.feed_passed(e.xid, e.position, f.floor, c.seen, c.until, c.after_position), false)
         or e.xid is null
         or (e.position > f.floor and not pg_visible_in_snapshot(e.xid, pg_current_snapshot())
             and e.xid is distinct from pg_current_xact_id_if_assigned())
  from (select taskledger_internal.feed_floor() as floor) f
  left join lateral (
   select n.seen, n.until, n.after_position
     from taskledger.cursors n
    where n.reader = 'seal'
    order by n.n desc
    limit 1) c on true
 cross join unnest($1::text::bigint[]) p(position)
 cross join lateral (select n.* from taskledger.event n where n.position = p.position limit 1) e
 where not exists (select from taskledger_internal.sealed_leaf(e.position))
 order by e.position
