-- Returns the events that this statement sees and the snapshot $1 does not, in the order of their positions, each with
-- this statement's snapshot. Without events there is one row, with the snapshot.
-- Takes no locks. Index: (xid, position).
select s.until::text, e.position, e.version, e.attempt, e.type::text, e.recorded_at, e.biz_id, e.data::text
  from (select pg_current_snapshot() as until) s
  left join lateral (
    select e.*
      from floor.event e
     where e.xid >= pg_snapshot_xmin($1::text::pg_snapshot) and e.xid < pg_snapshot_xmax(s.until)
       and not pg_visible_in_snapshot(e.xid, $1::text::pg_snapshot)
       and pg_visible_in_snapshot(e.xid, s.until)) e on true
 order by e.position
