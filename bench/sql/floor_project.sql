-- Projects the events that $2 sees and $1 does not, one row for each task, and returns how many tasks succeeded.
-- $1, $2 snapshots (text). Index: (xid, position).
with e as materialized (
  select e.*
    from floor.event e
   where e.xid >= pg_snapshot_xmin($1::text::pg_snapshot) and e.xid < pg_snapshot_xmax($2::text::pg_snapshot)
     and not pg_visible_in_snapshot(e.xid, $1::text::pg_snapshot)
     and pg_visible_in_snapshot(e.xid, $2::text::pg_snapshot)
), newest as (
  select distinct on (kind, biz_id) * from e order by kind, biz_id, version desc
), written as (
  insert into floor.task (kind, biz_id, version, state, updated_at, data)
  select kind, biz_id, version, type, recorded_at, data from newest
      on conflict (kind, biz_id) do update
     set version = excluded.version, state = excluded.state, updated_at = excluded.updated_at
)
select count(*) from e where type = 'succeeded'
