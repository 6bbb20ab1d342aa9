-- Selects whether the projection of the floor has every event. No parameters. Index: (xid, position).
select not exists (
  select from floor.event e
   cross join floor.cursor c
   where c.reader = 'projector' and e.xid >= pg_snapshot_xmin(c.seen) and not pg_visible_in_snapshot(e.xid, c.seen))
