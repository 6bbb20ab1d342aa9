-- The events between two snapshots by the plain definition, visible in $2 and not in $1: the
-- belt to the braces of page.sql, which finds the same events without looking at every xid.
-- $1 seen, $2 until. Locks nothing. Index: (xid, position).
select e.position
  from taskledger.event e
 where e.xid >= pg_snapshot_xmin($1::text::pg_snapshot) and e.xid < pg_snapshot_xmax($2::text::pg_snapshot)
   and pg_visible_in_snapshot(e.xid, $2::text::pg_snapshot)
   and not pg_visible_in_snapshot(e.xid, $1::text::pg_snapshot)
