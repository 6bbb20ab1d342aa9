-- The past in the order of the feed: which events were visible when, and the content of a place in that order.
-- Owner: package internal/feed.
--
--   moment  written and read by feed
--
-- Other packages call place and heads_page.

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
  'The events visible at a time, to read the past in the order of commits. Append-only; old rows are thinned.';

-- A row that was restored from a dump contains transaction IDs of another database.
create view taskledger.moments as
select m.at, m.snapshot, m.top, m.bound
  from taskledger.moment m
 where m.xmin::text::bigint = (m.xid::text::numeric % 4294967296)::bigint;

comment on view taskledger.moments is
  'The rows of the table moment whose transaction IDs belong to this database.';

-- A place in the order of the feed: the events visible in seen, and all events visible in until up to after_position.
--
-- Of a time: between two moments the position decides, which is drawn at the insert: the place is before the first
-- event that was recorded after the time. So it never includes a version of a task without the earlier ones, whatever
-- the clocks did. The search takes as many descents of an index as the number of positions between the moments has
-- bits.
--
-- Of an event: the first moment at which the event was visible ends the window that the event is in.
-- +goose StatementBegin
create function taskledger_internal.place(at timestamptz, "position" bigint)
returns table (seen pg_snapshot, seen_top bigint, seen_bound xid8, until pg_snapshot, top bigint, after_position bigint,
               bound xid8)
language plpgsql stable
set search_path = pg_catalog, pg_temp set enable_bitmapscan = off set enable_seqscan = off set jit = off as $$
declare
  since timestamptz := at;  -- the window ends at a moment since then
  of_xid xid8;              -- at which this transaction is visible
  low record;
  high record;
  probe record;
  past bigint;   -- the lowest position known to be recorded after the time
  middle bigint;
begin
  if place.position is not null then
    select case when e.position <= taskledger_internal.feed_floor() then '3'::xid8 else e.xid end, e.recorded_at
      into of_xid, since
      from taskledger.event e
     where e.position = place.position;
    if of_xid is null then
      return;
    end if;
  end if;
  select m.at, m.snapshot, m.top, m.bound into high
    from taskledger.moments m
   where m.at >= since
     and case when of_xid is null then m.at > since else pg_visible_in_snapshot(of_xid, m.snapshot) end
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
  bound := high.bound;
  after_position := coalesce(place.position, seen_top);
  past := case when of_xid is null then greatest(top, seen_top) + 1 else after_position end;
  while past - after_position > 1 loop
    middle := after_position + (past - after_position) / 2;
    select e.position, e.recorded_at into probe
      from taskledger.event e
     where e.position >= middle and e.position < past
     order by e.position
     limit 1;
    if probe.position is null or probe.recorded_at > place.at then
      past := middle;
    else
      after_position := probe.position;
    end if;
  end loop;
  return next;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.place(timestamptz, bigint) is
  'Returns the place of a time, or of an event by its position, in the order of commits: the columns of a cursor. '
  'No row without such an event. Null for bound means that it must be drawn now.';

-- Of each minute that is older than an hour it keeps the first moment and the last, so that a longer time without
-- commits keeps both its ends. With its owner's rights: a role with the privilege DELETE may lock the whole table, and
-- could remove the record of the past. Deletes rows that no other transaction locks. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.thin_moments(since timestamptz) returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  next_since timestamptz;
begin
  with old as materialized (
    select m.at, date_trunc('minute', m.at) as minute,
           date_trunc('minute', lag(m.at) over (order by m.at)) as minute_before,
           date_trunc('minute', lead(m.at) over (order by m.at)) as minute_after
      from taskledger.moment m
     where m.at >= since and m.at < date_trunc('minute', clock_timestamp() - interval '1 hour')
  ), gone as (
    delete from taskledger.moment m
     using old o
     where m.at = o.at and o.minute = o.minute_before and o.minute = o.minute_after
  )
  select max(o.minute) into next_since from old o;
  return coalesce(next_since, since);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.thin_moments(timestamptz) is
  'Removes moments since a time that are older than an hour, and returns the time to continue at.';

-- One scan of the primary key from the key on, which ends after how_many tasks: no sort and no hash of all of them.
-- Planned as feed_page is.
-- +goose StatementBegin
create function taskledger_internal.heads_page(seen pg_snapshot, until pg_snapshot, after_position bigint, top bigint,
                                               kind text, biz_id text, last_kind text, how_many integer)
returns setof taskledger.event
language plpgsql stable
set search_path = pg_catalog, pg_temp set enable_bitmapscan = off set enable_seqscan = off set enable_hashagg = off
set enable_hashjoin = off set enable_mergejoin = off set enable_sort = off set plan_cache_mode = force_generic_plan
set jit = off as $$
declare
  floor bigint := taskledger_internal.feed_floor();
begin
  return query
  with heads as materialized (
    select e.kind, e.biz_id, max(e.version) as version
      from taskledger.event e
     where (e.kind, e.biz_id) > (heads_page.kind, heads_page.biz_id) and e.kind <= heads_page.last_kind
       and e.position <= heads_page.top
       and taskledger_internal.feed_passed(e.xid, e.position, floor, heads_page.seen, heads_page.until,
                                           heads_page.after_position)
     group by e.kind, e.biz_id
     order by e.kind, e.biz_id
     limit heads_page.how_many
  )
  select e.*
    from heads h
    join taskledger.event e on e.kind = h.kind and e.biz_id = h.biz_id and e.version = h.version;
end
$$;
-- +goose StatementEnd

comment on function
  taskledger_internal.heads_page(pg_snapshot, pg_snapshot, bigint, bigint, text, text, text, integer) is
  'Returns the last events of the next how_many tasks after a key, as of a place, in key order.';

revoke all on all functions in schema taskledger, taskledger_internal from public;
