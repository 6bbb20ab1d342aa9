-- Moments: what was visible at a time, so that the past can be read in the order of commits.
-- Owner: package ledger/feed.
--
--   moment  written by feed, read by its functions place_at and place_of
--
-- Other packages call place_at and place_of.

-- +goose Up

-- No row is exact about the time between it and the next one. Feeds add a row about every second in which something is
-- committed, and one for the end of a longer time without commits.
create table taskledger.moment (
  at       timestamptz primary key,
  snapshot pg_snapshot not null,
  top      bigint not null,  -- the last position that was drawn
  bound    xid8 not null,    -- newer than both
  xid      xid8 not null default pg_current_xact_id()); -- equals xmin in every physical copy of this row

comment on table taskledger.moment is
  'What was visible at a time, by which the past is read in the order of commits. Append-only; old rows are thinned.';

-- A row that was restored from a dump has the transaction IDs of another database.
create view taskledger.moments as
select m.at, m.snapshot, m.top, m.bound
  from taskledger.moment m
 where m.xmin::text::bigint = (m.xid::text::numeric % 4294967296)::bigint;

comment on view taskledger.moments is
  'The rows of the table moment whose transaction IDs have a meaning in this database.';

-- A place in the order of the feed: the events visible in seen, and of those visible in until all up to after_position.
-- Between two moments the position decides, which is drawn at the insert: the place is before the first event that was
-- recorded after the time. So it never has a version of a task without the earlier ones, whatever the clocks did.
-- The search takes as many descents of an index as the number of positions between the moments has bits.
-- +goose StatementBegin
create function taskledger.place_at(at timestamptz)
returns table (seen pg_snapshot, seen_top bigint, seen_bound xid8, until pg_snapshot, top bigint, after_position bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp set enable_bitmapscan = off set enable_seqscan = off set jit = off as $$
declare
  low record;
  high record;
  probe record;
  past bigint;   -- the lowest position known to be recorded after the time
  middle bigint;
begin
  select m.snapshot, m.top, m.bound into low
    from taskledger.moments m where m.at <= place_at.at order by m.at desc limit 1;
  select m.snapshot, m.top into high
    from taskledger.moments m where m.at > place_at.at order by m.at limit 1;
  if high.snapshot is null and pg_is_in_recovery() then
    raise exception 'taskledger: the database is a standby' using errcode = 'read_only_sql_transaction';
  end if;
  seen := coalesce(low.snapshot, '3:3:'); seen_top := coalesce(low.top, 0); seen_bound := coalesce(low.bound, '3');
  until := coalesce(high.snapshot, pg_current_snapshot());
  top := coalesce(high.top, (select e.position from taskledger.event e order by e.position desc limit 1), 0);
  after_position := seen_top;
  past := greatest(top, seen_top) + 1;
  while past - after_position > 1 loop
    middle := after_position + (past - after_position) / 2;
    select e.position, e.recorded_at into probe
      from taskledger.event e
     where e.position >= middle and e.position < past
     order by e.position
     limit 1;
    if probe.position is null or probe.recorded_at > place_at.at then
      past := middle;
    else
      after_position := probe.position;
    end if;
  end loop;
  return next;
end
$$;
-- +goose StatementEnd

comment on function taskledger.place_at(timestamptz) is
  'Internal: returns the place of a time in the order of commits: the columns of a cursor.';

-- The first moment at which the event was visible ends the window that the event is in.
-- +goose StatementBegin
create function taskledger.place_of("position" bigint)
returns table (seen pg_snapshot, seen_top bigint, seen_bound xid8, until pg_snapshot, top bigint, after_position bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp set enable_bitmapscan = off set enable_seqscan = off set jit = off as $$
declare
  low record;
  high record;
  found record;
begin
  select e.xid, e.recorded_at into found from taskledger.event e where e.position = place_of.position;
  if found.xid is null then
    return;
  end if;
  select m.at, m.snapshot, m.top into high
    from taskledger.moments m
   where m.at >= found.recorded_at and pg_visible_in_snapshot(found.xid, m.snapshot)
   order by m.at
   limit 1;
  if high.snapshot is null and pg_is_in_recovery() then
    raise exception 'taskledger: the database is a standby' using errcode = 'read_only_sql_transaction';
  end if;
  select m.snapshot, m.top, m.bound into low
    from taskledger.moments m
   where m.at < coalesce(high.at, 'infinity')
   order by m.at desc
   limit 1;
  seen := coalesce(low.snapshot, '3:3:'); seen_top := coalesce(low.top, 0); seen_bound := coalesce(low.bound, '3');
  until := coalesce(high.snapshot, pg_current_snapshot());
  top := coalesce(high.top, (select e.position from taskledger.event e order by e.position desc limit 1), 0);
  after_position := place_of.position;
  return next;
end
$$;
-- +goose StatementEnd

comment on function taskledger.place_of(bigint) is
  'Internal: returns the place of an event, by its position, in the order of commits; no row without such an event.';
