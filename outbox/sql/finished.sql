-- Selects which of some kinds have no task that is available or running, as the projector has counted them at a place
-- behind that of a snapshot: then no worker needs a message of an event that is visible in the snapshot.
-- $1 kinds (text array literal), $2 snapshot, $3 snapshot of the relay's place. No row while the projector has not come
-- so far, or in a copy of another database.
-- Returns with each kind whether the relay has passed all events that the projector has counted.
-- Locks nothing. Indexes: primary key of cursor, backwards; primary key of task_count, backwards, twice for each kind;
-- those of taskledger.feed_pending.
with projected as materialized (
  select c.seen, coalesce(c.until, c.seen) as counted,
         $2::text::pg_snapshot as boundary, $3::text::pg_snapshot as published
    from (select n.seen, n.until, n.is_local
            from taskledger.cursors n
           where n.reader = 'projector'
           order by n.n desc
           limit 1) c
   where c.is_local),
covering as materialized (
  select pg_snapshot_xmax(p.published) >= pg_snapshot_xmax(p.counted)
         and not exists (select from pg_snapshot_xip(p.published) x where pg_visible_in_snapshot(x, p.counted))
         or not exists (select from taskledger.feed_pending('relay', 1)) as is_passed
    from projected p
   where pg_snapshot_xmax(p.seen) >= pg_snapshot_xmax(p.boundary)
         and not exists (select from pg_snapshot_xip(p.seen) x where pg_visible_in_snapshot(x, p.boundary))
      or not exists (select from taskledger.feed_pending('projector', 1)))
select k.kind, c.is_passed
  from covering c
 cross join unnest($1::text::text[]) k(kind)
 where not exists (
     select from unnest('{available,running}'::taskledger.task_state[]) s(state)
      cross join lateral (
        select t.tasks
          from taskledger.task_totals t
         where t.kind = k.kind and t.state = s.state
         order by t.n desc
         limit 1) newest
      where newest.tasks > 0)
