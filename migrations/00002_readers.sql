-- What reads the ledger: how far each reader has got, who is at work, what could not be published.

-- +goose Up

-- How far each feed reader has got. Append-only: the row with the highest n is the cursor.
-- Everything visible in seen is behind it; of the window between seen and until,
-- everything up to after_position is (until is null between windows).
create table taskledger.cursor (
  reader         text collate "C" not null,
  n              bigint not null,
  seen           pg_snapshot not null,
  seen_top       bigint not null,
  seen_bound     xid8 not null,
  until          pg_snapshot,
  top            bigint,
  bound          xid8,
  after_position bigint not null default 0,
  audited        pg_snapshot,     -- what was delivered since is not audited yet; null: everything is
  unaudited      bigint not null default 0,  -- how many events that is
  unaudited_xor  bigint not null default 0,  -- and their positions, combined by exclusive or
  origin         text not null,   -- <system identifier>/<database oid> of the cluster whose xids these are
  xid            xid8 not null default pg_current_xact_id(),  -- equals xmin in every physical copy of this row
  mark           json,            -- the reader's own note, for example the stream sequence it published up to
  recorded_at    timestamptz not null default clock_timestamp(),
  primary key (reader, n))
  with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- One row per role (relay, …) and per worker process. A lease saves double work;
-- what is correct never rests on it.
create table taskledger.lease (
  name        text collate "C" primary key,
  holder      text not null,
  since       timestamptz not null default clock_timestamp(),
  alive_until timestamptz not null,
  detail      json)
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

-- Events the relay could not publish. They block nobody else and make the status degraded.
create table taskledger.parked (
  position  bigint primary key,
  kind      text collate "C" not null,
  biz_id    text collate "C" not null,
  version   integer not null,
  reason    text not null,
  parked_at timestamptz not null default clock_timestamp());

-- Which cluster and database this is. xids mean nothing outside of it.
-- +goose StatementBegin
create function taskledger.origin() returns text
language sql stable
return (select c.system_identifier::text from pg_control_system() c)
  || '/' || (select d.oid::text from pg_database d where d.datname = current_database());
-- +goose StatementEnd

-- One row, in a table that crash recovery empties (so do the promotion of a standby and the copy
-- of a data directory, and an orderly restart does not). A crash may forget the newest xids and
-- positions, and give them out again: a feed that has them in memory would take what comes then
-- for seen. It compares this id and begins anew from its cursor row, which survived only together
-- with what it covers.
create unlogged table taskledger.incarnation (
  id  uuid not null default gen_random_uuid(),
  one boolean primary key default true check (one));

-- The id of the present incarnation; null after a crash, until a feed is opened, and on a standby.
-- plpgsql, so that a standby, which knows no unlogged tables, does not look for it. By the key: in a
-- transaction without sequential scans any other plan costs so much that it would be compiled.
-- +goose StatementBegin
create function taskledger.incarnation() returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if pg_is_in_recovery() then
    return null;
  end if;
  return (select i.id::text from taskledger.incarnation i where i.one);
end
$$;
-- +goose StatementEnd

-- The xids that a window must look at one by one: those running when its lower snapshot was
-- taken, and those handed out between that snapshot and its bound. (xmax of a snapshot is the
-- latest completed xid + 1, so running transactions may lie above it.)
-- plpgsql on purpose: inlined, it made every poll plan its statements anew (0.2 ms each).
-- +goose StatementBegin
create function taskledger.late_xids(seen pg_snapshot, seen_bound xid8) returns setof xid8
language plpgsql immutable parallel safe rows 20 set search_path = pg_catalog, pg_temp as $$
begin
  return query
  select x from pg_snapshot_xip(late_xids.seen) x
  union
  select g::text::xid8
    from generate_series(pg_snapshot_xmax(late_xids.seen)::text::bigint, late_xids.seen_bound::text::bigint - 1) g;
end
$$;
-- +goose StatementEnd

-- A page of a window, in position order. A window is what one snapshot (until) sees and an
-- earlier one (seen) did not; it is fixed for ever, so a page can be read again, and ahead, from
-- any connection to the primary.
--
-- late: positions drawn before seen_top by transactions then unfinished. Their xid is among
--   late_xids: each insert draws its xid before its position, so a position <= seen_top has an
--   xid < seen_bound. Looked up by xid; comparing rows, and not columns, leaves the planner no
--   other index to walk.
-- tail: positions drawn since, up to top.
--
-- A page costs the same anywhere in a window of any size, so the planner must not be free to
-- collect and sort a whole range: with bitmap and sequential scans off, only the two index
-- scans in order are left.
-- +goose StatementBegin
create function taskledger.feed_page(seen pg_snapshot, seen_top bigint, seen_bound xid8, until pg_snapshot, top bigint,
                                     after_position bigint, how_many integer)
returns setof taskledger.event
language plpgsql stable
set search_path = pg_catalog, pg_temp set enable_bitmapscan = off set enable_seqscan = off
set plan_cache_mode = force_generic_plan as $$
declare
  late_rows integer;
begin
  return query
  select late.*
    from taskledger.late_xids(feed_page.seen, feed_page.seen_bound) x
   cross join lateral (
     select e.*
       from taskledger.event e
      where (e.xid, e.position) > (x, feed_page.after_position)
        and (e.xid, e.position) <= (x, feed_page.seen_top)
      order by e.xid, e.position
      limit feed_page.how_many) late
   where pg_visible_in_snapshot(x, feed_page.until)
   order by late.position
   limit feed_page.how_many;
  get diagnostics late_rows = row_count;
  return query
  select e.*
    from taskledger.event e
   where e.position > greatest(feed_page.after_position, feed_page.seen_top) and e.position <= feed_page.top
     and pg_visible_in_snapshot(e.xid, feed_page.until)
   order by e.position
   limit feed_page.how_many - late_rows;
end
$$;
-- +goose StatementEnd

-- What the audit of a feed compares with: how many events since does not see and until sees, and
-- the exclusive or of their positions, by the definition of a snapshot alone. It looks at no more
-- than how_many entries of the index, in its order, after the one named, and tells how many there
-- were and which was the last. Entries that until does not see are looked at but not counted;
-- those of transactions unfinished in both snapshots are not looked at.
-- An aggregate and not a set: returned as rows it took three times as long.
-- +goose StatementBegin
create function taskledger.feed_tally(since pg_snapshot, until pg_snapshot, how_many integer,
                                      inout xid xid8, inout "position" bigint,
                                      out entries bigint, out events bigint, out positions bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp set enable_bitmapscan = off set enable_seqscan = off
set plan_cache_mode = force_generic_plan as $$
declare
  lower xid8 := greatest(feed_tally.xid, pg_snapshot_xmax(since));
  lower_position bigint := case when feed_tally.xid < lower then 0 else feed_tally.position end;
begin
  select count(*), count(*) filter (where s.seen), coalesce(bit_xor(s.position) filter (where s.seen), 0),
         coalesce((array_agg(s.xid))[count(*)], feed_tally.xid), coalesce((array_agg(s.position))[count(*)], feed_tally.position)
    into entries, events, positions, feed_tally.xid, feed_tally.position
    from (
      select both_arms.xid, both_arms.position, pg_visible_in_snapshot(both_arms.xid, until) as seen
        from (
          select unfinished.*
            from pg_snapshot_xip(since) x
           cross join lateral (
             select e.xid, e.position
               from taskledger.event e
              where (e.xid, e.position) > (x, case when x = feed_tally.xid then feed_tally.position else 0 end)
                and (e.xid, e.position) <= (x, 9223372036854775807)
              order by e.xid, e.position
              limit how_many) unfinished
           where x >= feed_tally.xid and pg_visible_in_snapshot(x, until)
           union all
          (select e.xid, e.position
             from taskledger.event e
            where (e.xid, e.position) > (lower, lower_position) and e.xid < pg_snapshot_xmax(until)
            order by e.xid, e.position
            limit how_many)) both_arms
       order by both_arms.xid, both_arms.position
       limit how_many) s;
end
$$;
-- +goose StatementEnd

-- The events not yet covered by the relay's cursor. Three arms, as the feed has two: what was
-- drawn before the window and is late, what was drawn in the published part of the window and is
-- not visible in it, and what was drawn since. Its cost is that of the events it shows.
create view taskledger.outbox as
with relay as materialized (
  select c.seen, c.seen_top, c.seen_bound, c.until, c.bound, c.after_position
    from taskledger.cursor c
   where c.reader = 'relay'
   order by c.n desc
   limit 1)
select late.position, late.kind, late.biz_id, late.version, late.type, late.recorded_at
  from relay r
 cross join lateral taskledger.late_xids(r.seen, r.seen_bound) x
 cross join lateral (
   select e.position, e.kind, e.biz_id, e.version, e.type, e.recorded_at
     from taskledger.event e
    where (e.xid, e.position) > (x, 0) and (e.xid, e.position) <= (x, r.seen_top)
      and (r.until is null or e.position > r.after_position or not pg_visible_in_snapshot(x, r.until))
   offset 0) late
union all
select unseen.position, unseen.kind, unseen.biz_id, unseen.version, unseen.type, unseen.recorded_at
  from relay r
 cross join lateral taskledger.late_xids(r.until, r.bound) x
 cross join lateral (
   select e.position, e.kind, e.biz_id, e.version, e.type, e.recorded_at
     from taskledger.event e
    where (e.xid, e.position) > (x, r.seen_top) and (e.xid, e.position) <= (x, r.after_position)
      and not pg_visible_in_snapshot(x, r.until)
   offset 0) unseen
 where r.until is not null
union all
select e.position, e.kind, e.biz_id, e.version, e.type, e.recorded_at
  from taskledger.event e
 where e.position > coalesce(
   (select case when r.until is null then r.seen_top else greatest(r.seen_top, r.after_position) end from relay r), 0);
