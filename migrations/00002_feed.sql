-- The feed: all events in an order that loses none, read by cursors, and the identity of the database.
-- Owner: package internal/feed.
--
--   incarnation  written and read by feed
--   cursor       written and read by feed, for the readers relay and projector
--   floor        written and read by feed
--
-- Other packages read the view cursors, and call incarnation, late_xids, feed_page, feed_floor, feed_passed
-- and feed_lag. The order of the past is in 00014_moment.sql.

-- +goose Up

-- plpgsql: each session plans it once. The same body as an SQL function takes 85 µs, not 20 µs.
-- Immutable: a session has one database, and PostgreSQL calls it once for each plan.
-- +goose StatementBegin
create function taskledger_internal.origin() returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  return (select c.system_identifier::text from pg_control_system() c) || '/'
      || (select d.oid::text from pg_database d where d.datname = current_database());
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.origin() is
  'Returns <system identifier>/<database oid>. Transaction ids mean nothing outside of this database.';

-- A promoted standby begins a new timeline.
-- +goose StatementBegin
create function taskledger_internal.timeline() returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if pg_is_in_recovery() then
    return null;
  end if;
  return ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.timeline() is
  'Returns the timeline of the database, which changes when a standby is promoted or an archive is restored; '
  'null on a standby.';

-- Aurora's disk outlives its servers, so there each start counts, and each beginning of the statistics, which
-- PostgreSQL discards at each crash recovery, even without a new postmaster. Elsewhere a crash empties
-- the table incarnation, and statistics that an administrator resets must not look like one. The planner inlines the
-- expression.
create function taskledger_internal.last_crash() returns text
language sql stable
return case when to_regproc('pg_catalog.aurora_version') is null then ''
            else coalesce(extract(epoch from pg_stat_get_bgwriter_stat_reset_time())::text, '') || '/'
              || extract(epoch from pg_postmaster_start_time()) end;

comment on function taskledger_internal.last_crash() is
  'Returns a text that changes with each crash recovery where unlogged tables survive it; elsewhere an empty one.';

-- A crash may forget the newest transaction ids and positions and assign them again. A feed that remembers them would
-- skip the new events. So the feed compares this id, and after a change continues from its cursor row: PostgreSQL keeps
-- that row only together with the events that it covers. The table is unlogged: crash recovery, the promotion of a
-- standby and the copy of a data directory empty it; an orderly restart does not. Where Aurora keeps it nevertheless,
-- last_crash differs. A dump contains its row, which belongs to another table after a restore.
create unlogged table taskledger.incarnation (
  id       uuid not null default gen_random_uuid(),
  of_table text not null default taskledger_internal.origin() || '/' || to_regclass('taskledger.incarnation')::oid
                                 || '/' || taskledger_internal.last_crash(),
  one      boolean primary key default true check (one));

comment on table taskledger.incarnation is
  'Internal: one row with an id that changes whenever PostgreSQL crashes, a standby is promoted or a dump is restored.';

-- plpgsql: a standby does not have unlogged tables, and must not plan the query. The query names the key: without
-- sequential scans any other plan seems so expensive that PostgreSQL would compile it.
-- +goose StatementBegin
create function taskledger_internal.incarnation() returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if pg_is_in_recovery() then
    return null;
  end if;
  return (select i.id::text
            from taskledger.incarnation i
           where i.one and i.of_table = taskledger_internal.origin() || '/' || i.tableoid
                                        || '/' || taskledger_internal.last_crash());
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.incarnation() is
  'Returns the id in the table incarnation; null on a standby, and until a feed is opened after a crash or a '
  'restore.';

-- Runs with its owner's rights: a role that may update the row could make every reader begin its page again.
-- +goose StatementBegin
create function taskledger_internal.begin_incarnation() returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  insert into taskledger.incarnation as i default values
      on conflict (one) do update set id = excluded.id, of_table = excluded.of_table
   where i.of_table <> excluded.of_table;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.begin_incarnation() is
  'Gives the database an incarnation if it lacks one.';

-- A session notes the incarnation once, like its login: reading the table costs as much as ten appends. A crash ends
-- the session and the incarnation, and before a promotion a session notes none. Three more facts are noted: the start
-- of the server, because a copy of a stopped server's data contains its incarnation when put back; and, because a
-- session continues, the table for when a dump is restored in its database, and last_crash for when statistics are
-- reset.
-- The server's start is not the text of a time, which depends on settings: a handler may set the time zone.
--
-- The planner inlines this expression. A session that changes the setting itself harms its own appends.
create function taskledger_internal.session_incarnation() returns text
language sql volatile
return case when starts_with(current_setting('taskledger.incarnation', true),
                             'taskledger.incarnation'::regclass::oid::text || '/'
                               || taskledger_internal.last_crash() || '/')
            then current_setting('taskledger.incarnation', true)
            else nullif(set_config('taskledger.incarnation', coalesce(
                   'taskledger.incarnation'::regclass::oid::text || '/' || taskledger_internal.last_crash() || '/'
                     || taskledger_internal.incarnation() || '/' || extract(epoch from pg_postmaster_start_time()),
                   ''), false), '') end;

comment on function taskledger_internal.session_incarnation() is
  'Returns the incarnation of the database and when its server started, as the session has noted them; null as '
  'incarnation.';

-- A cursor covers everything that is visible in seen and, of the window between seen and until,
-- everything up to after_position.
create table taskledger.cursor (
  reader         text collate "C" not null,
  n              bigint not null,
  seen           pg_snapshot not null,
  seen_top       bigint not null,
  seen_bound     xid8 not null,
  until          pg_snapshot,     -- null between windows
  top            bigint,
  bound          xid8,
  after_position bigint not null default 0,
  audited        pg_snapshot,     -- events delivered since are not yet audited; null: all are
  unaudited      bigint not null default 0,  -- the number of those events
  unaudited_xor  bigint not null default 0,  -- the exclusive or of their positions
  origin         text not null,   -- taskledger_internal.origin() of the database whose transaction ids these are
  timeline       bigint not null default taskledger_internal.timeline(),
  xid            xid8 not null default pg_current_xact_id(),  -- equals xmin in every physical copy of this row
  mark           json,            -- the reader's own data, for example the stream sequence it published up to
  login          text,            -- the session user that a subscriber belongs to; null: none yet, or a service
  recorded_at    timestamptz not null default clock_timestamp(),
  primary key (reader, n))
  with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

comment on table taskledger.cursor is
  'How far each reader of the feed has read. Append-only: the row with the highest n is the cursor.';

-- A row was written in this database if its transaction ID equals the physical row's. The two differ for a row that was
-- restored from a dump into this database. A row ahead of the sequence is newer than the events, which were
-- restored without it: they get positions that it has passed. If the sequence is behind the events too, only the
-- sequence was set back.
create view taskledger.cursors as
select c.reader, c.n, c.seen, c.seen_top, c.seen_bound, c.until, c.top, c.bound, c.after_position, c.mark,
       c.login, c.recorded_at, c.timeline,
       was.written_here and not was.ahead as is_local, was.written_here
  from taskledger.cursor c
 cross join lateral (
   select c.origin = taskledger_internal.origin() or c.xmin::text::bigint = (c.xid::text::numeric % 4294967296)::bigint
          as written_here,
          case when greatest(c.seen_top, c.top) > pg_sequence_last_value('taskledger.event_position_seq'::regclass)
            then taskledger_internal.position_behind() = 0 else false end as ahead) was;

comment on view taskledger.cursors is
  'The cursor of each reader of the feed: the row with the highest n. Older rows are kept for a time. If is_local '
  'is false, the row must not be used: it belongs to another database, so that its transaction IDs are meaningless '
  'here, or it is ahead of the sequence of positions.';

-- A window is audited against the events in the table, so events stay until they are audited. The seal and the keeper
-- of lines audit nothing. The keeper needs events with an order key only: other pages rarely move its cursor.
create view taskledger_internal.feed_holds as
select c.reader, case when w.is_local then coalesce(w.audited, c.seen) else pg_snapshot '1:1:' end as seen,
       case when w.is_local and w.audited is null then c.until end as until, c.after_position,
       case when w.is_local then c.seen else pg_snapshot '1:1:' end as read,
       case when w.is_local then c.until end as read_until,
       starts_with(c.reader, 'subscriber/') or c.reader = 'relay' as is_bounded, c.reader = 'line' as is_of_lines
  from (select distinct on (n.reader) n.* from taskledger.cursor n order by n.reader, n.n desc) c
 cross join lateral (
   select v.is_local, case when c.reader not in ('seal', 'line') then c.audited end as audited
     from taskledger.cursors v where v.reader = c.reader and v.n = c.n) w;

comment on view taskledger_internal.feed_holds is
  'The events that each reader of the feed has read and audited, as feed_passed takes them; those that it has read '
  '(read, read_until); whether it may miss older events, and whether it needs only events with an order key.';

-- Up to the floor, events belong to another database: they were restored, and their transaction ids are meaningless.
-- Every snapshot except the first sees them, as if their transaction id were 3, the lowest id. A rebase raises the
-- floor while no transaction writes events, so all events up to it are committed. origin and xid identify the database
-- for which the floor holds, as in a cursor row.
create table taskledger.floor (
  position  bigint not null,
  origin    text not null default taskledger_internal.origin(),
  xid       xid8 not null default pg_current_xact_id(),
  raised_at timestamptz,  -- null: by no rebase
  one       boolean primary key default true check (one));

insert into taskledger.floor (position) values (0);

comment on table taskledger.floor is
  'Internal: one row with the last position whose transaction id belongs to another database; 0: none. '
  '`taskledger rebase` writes it.';

-- plpgsql: each session plans it once. Statements call it in a subquery without columns, so once.
-- +goose StatementBegin
create function taskledger_internal.feed_floor() returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return (select f.position from taskledger.floor f where f.one);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.feed_floor() is
  'Returns the last position whose transaction id belongs to another database; 0: none.';

-- Rows that a restore inserted are older than this transaction, whatever id they have as a value. With its owner's
-- rights, because a policy of the table calls it. Index: (xid, position).
-- +goose StatementBegin
create function taskledger_internal.restored_until() returns bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return coalesce((
    select e.position
      from taskledger.event e
     where e.xid = pg_current_xact_id_if_assigned() and age(e.xmin) > 0
     order by e.position desc
     limit 1), 0);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.restored_until() is
  'Returns the last position of an event with the transaction''s id that an older transaction inserted; '
  '0: none.';

-- Rights on a transaction's own events compare transaction ids, which another database may have assigned, too. So such
-- an event must also be above foreign_until. Events of another database may have come without its floor, so the
-- transaction's first event is checked: restored events come before its own. One descent of the index (xid, position).
-- A view, because a call of a function would cost an insert a tenth more.
create view taskledger_internal.floors as
select f.position, f.is_local, f.raised_at,
       case when exists (
              select from (
                select e.xmin
                  from taskledger.event e
                 where e.xid = pg_current_xact_id_if_assigned() and e.position > f.position
                 order by e.position
                 limit 1) first
               where age(first.xmin) > 0)
            then taskledger_internal.restored_until() else f.position end as foreign_until
  from (
   select l.position, l.raised_at,
          l.xmin::text::bigint = (l.xid::text::numeric % 4294967296)::bigint or l.origin = taskledger_internal.origin()
            as is_local
     from taskledger.floor l
    where l.one) f;

comment on view taskledger_internal.floors is
  'The floor, and when the last rebase raised it (null: never). If is_local is false, it belongs to another database, '
  'as after a restore until the rebase. foreign_until is the last position at which an event with the transaction''s '
  'id may be of another database.';

-- A database that was restored as a whole has another database's floor. Otherwise events may have come without it, by a
-- dump of some tables or by logical replication. Then their ids are ahead of this database, or harmless: an id that it
-- has passed is visible in every window. Three probes of one row each find them, whatever was written since.
-- +goose StatementBegin
create function taskledger_internal.foreign_position() returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $$
declare
  floor bigint := (select f.position from taskledger_internal.floors f where f.is_local);
begin
  if floor is null then
    return 0;
  end if;
  return (
    select e.position
      from ((select n.xid, n.position from taskledger.event n order by n.xid desc, n.position desc limit 1)
            union all
            (select f.xid, f.position from taskledger.event f where f.position > floor order by f.position limit 1)
            union all
            (select l.xid, l.position from taskledger.event l order by l.position desc limit 1)) e
     where e.position > floor and e.xid >= pg_snapshot_xmax(pg_current_snapshot())
     limit 1);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.foreign_position() is
  'Returns the position of an event above the floor that belongs to another database, because this database '
  'has not reached its transaction id; 0 if the floor itself belongs to another database; null: no such event.';

-- The end of the relay's sleep, in microseconds since 1970 by the database's clock; in the past while it is awake. It
-- is a sequence because reads and writes of a sequence belong to no transaction. It is unlogged because a crash ends
-- the sleep. The relay extends it with each poll, so it ends by itself if the relay ends.
create unlogged sequence taskledger.asleep_until;

comment on sequence taskledger.asleep_until is
  'Internal: until when the relay sleeps unless it is notified, in microseconds since 1970.';

-- A statement that inserts one task calls this first: the planner inlines the expression, while a call of wake costs as
-- much as a tenth of the insert. date_part('epoch', ...) costs more than the sequence.
create function taskledger_internal.relay_sleeps() returns boolean
language sql volatile
return to_timestamp(pg_sequence_last_value('taskledger.asleep_until'::regclass) * 1e-6::float8) > clock_timestamp();

comment on function taskledger_internal.relay_sleeps() is
  'Returns whether the relay sleeps until it is notified; null if it never did.';

-- Commits that notify wait for each other in the whole database, so wake notifies only while the relay sleeps.
-- A transaction that has inserted before the relay sleeps, and commits afterwards, does not notify: the relay polls at
-- intervals that grow with its sleep. Correctness never rests on a notification. With a full queue, which a listener of
-- any database of the cluster can cause, a transaction that notifies fails at its commit.
-- Every name is qualified, because setting search_path would cost more than the rest. With its owner's rights, so that
-- a role that inserts needs none for the sequence.
-- +goose StatementBegin
create function taskledger_internal.wake(enqueued bigint default null) returns void
language plpgsql volatile security definer as $$
begin
  if pg_catalog.pg_sequence_last_value('taskledger.asleep_until'::pg_catalog.regclass)::pg_catalog.float8
     operator(pg_catalog.>)
     (1000000.0::pg_catalog.float8 operator(pg_catalog.*) pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()))
     and pg_catalog.pg_notification_queue_usage() operator(pg_catalog.<) 0.5::pg_catalog.float8
  then
    perform pg_catalog.pg_notify('taskledger', coalesce(enqueued::pg_catalog.text, ''));
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.wake(bigint) is
  'Notifies the relay at the commit of the calling transaction, if it sleeps. The notification contains '
  'the position of an event that has enqueued a task, or nothing.';

-- Until when processes wait for outcomes, like asleep_until. Meanwhile, statements that append events wake the relay.
create unlogged sequence taskledger.awaited_until;

comment on sequence taskledger.awaited_until is
  'Internal: until when appends of events wake the relay, in microseconds since 1970.';

-- Each statement that appends calls this, inlined like relay_sleeps.
create function taskledger_internal.is_awaited() returns boolean
language sql volatile
return to_timestamp(pg_sequence_last_value('taskledger.awaited_until'::regclass) * 1e-6::float8) > clock_timestamp();

comment on function taskledger_internal.is_awaited() is
  'Returns whether a process waits for outcomes; null if none ever did.';

-- Runs with its owner's rights: a role that reads events may wait, for at most a minute at a time. A moment further
-- ahead dates from before the clock was set back.
-- +goose StatementBegin
create function taskledger_internal.await_outcomes(microseconds bigint) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  longest constant bigint := 60000000;
  now constant bigint := date_part('epoch', clock_timestamp()) * 1e6;
  until constant bigint := pg_sequence_last_value('taskledger.awaited_until');
begin
  perform setval('taskledger.awaited_until', greatest(
    case when until <= now + longest then until end, now + least(greatest(microseconds, 0), longest)));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.await_outcomes(bigint) is
  'Makes appends of events wake the relay for this time, at most a minute.';

-- The xmax of a snapshot is the latest completed transaction id + 1, so running transactions may lie above it. The
-- calling statement sees no event of a transaction id from below on, whatever bound a row contains. A rebase, which
-- reads the ids of another database, passes its own value. plpgsql: an SQL function is inlined, and then every poll
-- plans its statements again (0.2 ms each).
-- +goose StatementBegin
create function taskledger_internal.late_xids(seen pg_snapshot, seen_bound xid8,
                                              below xid8 default pg_snapshot_xmax(pg_current_snapshot()))
returns setof xid8
language plpgsql immutable parallel safe rows 20 set search_path = pg_catalog, pg_temp as $$
begin
  return query
  select x from pg_snapshot_xip(late_xids.seen) x
  union
  select g::text::xid8
    from generate_series(pg_snapshot_xmax(late_xids.seen)::text::bigint,
                         least(late_xids.seen_bound, late_xids.below)::text::bigint - 1) g;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.late_xids(pg_snapshot, xid8, xid8) is
  'Returns the transaction ids that a window must read one by one: '
  'ids running in the snapshot seen, and ids below below that were assigned between it and seen_bound.';

-- Merges the transactions by position. It reads a chunk of each, and then continues the transaction that is read least
-- far, by as much as it has read of it, until the events found so far suffice. So it reads a few times how_many entries
-- of the index, however many transactions there are and however large they are. Each read ends by its limit, because
-- PostgreSQL ends a scan by a row comparison only at the next xid. Planned as feed_page is.
-- +goose StatementBegin
create function taskledger_internal.late_shares(late xid8[], after_position bigint, top bigint, how_many integer)
returns table (xid xid8, events integer)
language plpgsql stable rows 20
set search_path = pg_catalog, pg_temp set enable_bitmapscan = off set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  chunk integer := greatest(2 * how_many / cardinality(late), 16);
  chunks integer[] := array_fill(chunk, array[cardinality(late)]);  -- how much of each transaction is read
  ends bigint[];                                                    -- how far each is read
  lowest bigint;                                                    -- of ends
  positions bigint[];                                               -- of the events found
  owners integer[];                                                 -- their transactions, as indexes of late
  found bigint[];
  i integer;
begin
  with run as materialized (
    select t.n, array(
             select e.position
               from taskledger.event e
              where (e.xid, e.position) > (t.x, after_position) and (e.xid, e.position) <= (t.x, top)
              order by e.xid, e.position
              limit chunk) as found
      from unnest(late) with ordinality t(x, n)
  )
  select array(select coalesce(r.found[chunk], top) from run r order by r.n), array_agg(f.position), array_agg(f.n)
    into ends, positions, owners
    from (select r.n, unnest(r.found) as position from run r) f;
  lowest := (select min(e) from unnest(ends) e);
  while lowest < top and (select count(*) from unnest(positions) p where p <= lowest) < how_many loop
    i := array_position(ends, lowest);
    found := array(
      select e.position
        from taskledger.event e
       where (e.xid, e.position) > (late[i], lowest) and (e.xid, e.position) <= (late[i], top)
       order by e.xid, e.position
       limit chunks[i]);
    ends[i] := coalesce(found[chunks[i]], top);
    chunks[i] := 2 * chunks[i];
    positions := positions || found;
    owners := owners || array_fill(i, array[cardinality(found)]);
    lowest := (select min(e) from unnest(ends) e);
  end loop;
  return query
  select late[f.owner], count(*)::integer
    from (select f.owner from unnest(positions, owners) f(position, owner) order by f.position limit how_many) f
   group by f.owner;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.late_shares(xid8[], bigint, bigint, integer) is
  'Returns, for each transaction, how many of the next how_many events up to position top are its own.';

-- A window contains the events that one snapshot (until) sees and an earlier one (seen) does not. It never changes, so
-- any connection to the primary can read a page again, or ahead.
--
-- Late: positions up to seen_top of transactions that were unfinished in seen. Their xid is among
--   late_xids: each insert draws its xid before its position, so a position <= seen_top has an
--   xid < seen_bound. The row comparison leaves the planner no index but (xid, position).
--   No event up to the floor is late, because all were committed when it was raised.
--   Of several transactions, only the events of this page are read, which late_shares counts. Of a few, up to
--   how_many events of each are read and sorted: with one event each, as producers have them, that is cheaper by far.
-- Tail: positions above seen_top, up to top. Up to the floor, transaction ids are meaningless.
--
-- A page must cost the same anywhere in a window of any size, so the planner must not collect and sort a whole range:
-- without bitmap and sequential scans, only the two index scans in order remain. Without jit: the estimated cost grows
-- with the history, and PostgreSQL would compile the query at each call, which with 10,000,000 events took longer than
-- everything else.
-- +goose StatementBegin
create function taskledger_internal.feed_page(seen pg_snapshot, seen_top bigint, seen_bound xid8, until pg_snapshot,
                                              top bigint, after_position bigint, how_many integer)
returns setof taskledger.event
language plpgsql stable strict
set search_path = pg_catalog, pg_temp set enable_bitmapscan = off set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  late xid8[];
  late_rows integer := 0;
  few constant integer := 4;
  floor bigint := (select f.position from taskledger.floor f where f.one);
  late_after bigint := greatest(feed_page.after_position, floor);
begin
  -- The transactions of late_xids, by its definition: a call of it would cost as much as the rest of a short page.
  if late_after < feed_page.seen_top and pg_snapshot_xmin(feed_page.seen) < feed_page.seen_bound then
    late := array(
      select x from pg_snapshot_xip(feed_page.seen) x where pg_visible_in_snapshot(x, feed_page.until)
       union all
      select x::text::xid8
        from generate_series(pg_snapshot_xmax(feed_page.seen)::text::bigint, feed_page.seen_bound::text::bigint - 1) x
       where pg_visible_in_snapshot(x::text::xid8, feed_page.until));
  end if;
  if cardinality(late) = 1 then
    return query
    select e.*
      from taskledger.event e
     where (e.xid, e.position) > (late[1], late_after)
       and (e.xid, e.position) <= (late[1], feed_page.seen_top)
     order by e.xid, e.position
     limit feed_page.how_many;
    get diagnostics late_rows = row_count;
  elsif cardinality(late) <= few then
    return query
    select l.*
      from unnest(late) x
     cross join lateral (
       select e.*
         from taskledger.event e
        where (e.xid, e.position) > (x, late_after)
          and (e.xid, e.position) <= (x, feed_page.seen_top)
        order by e.xid, e.position
        limit feed_page.how_many) l
     order by l.position
     limit feed_page.how_many;
    get diagnostics late_rows = row_count;
  elsif cardinality(late) > few then
    return query
    select l.*
      from taskledger_internal.late_shares(late, late_after, feed_page.seen_top, feed_page.how_many) s
     cross join lateral (
       select e.*
         from taskledger.event e
        where (e.xid, e.position) > (s.xid, late_after)
          and (e.xid, e.position) <= (s.xid, feed_page.seen_top)
        order by e.xid, e.position
        limit s.events) l
     order by l.position
     limit feed_page.how_many;
    get diagnostics late_rows = row_count;
  end if;
  return query
  select e.*
    from taskledger.event e
   where e.position > greatest(feed_page.after_position, feed_page.seen_top) and e.position <= feed_page.top
     and (e.position <= floor or pg_visible_in_snapshot(e.xid, feed_page.until))
   order by e.position
   limit feed_page.how_many - late_rows;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.feed_page(pg_snapshot, bigint, xid8, pg_snapshot, bigint, bigint, integer) is
  'Returns the next how_many events of a window after a position, in the order of the feed; none of null.';

-- Reads at most how_many entries of the index (xid, position), in its order, after the given entry. Returns the number
-- of entries read, the last entry, the number of events that until sees and since does not, and the exclusive or of
-- their positions. It does not read entries of transactions that are unfinished in both snapshots, and does not count
-- entries up to the floor. It returns aggregates, because returning the rows took three times as long. Planned as
-- feed_page is.
-- +goose StatementBegin
create function taskledger_internal.feed_tally(since pg_snapshot, until pg_snapshot, how_many integer,
                                               inout xid xid8, inout "position" bigint,
                                               out entries bigint, out events bigint, out positions bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp set enable_bitmapscan = off set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  lower xid8 := greatest(feed_tally.xid, pg_snapshot_xmax(since));
  lower_position bigint := case when feed_tally.xid < lower then 0 else feed_tally.position end;
  floor bigint := taskledger_internal.feed_floor();
  x xid8;
  part record;
begin
  entries := 0; events := 0; positions := 0;
  -- unfinished in since: one after the other, so that only how_many entries are read of all of them
  for x in select u from pg_snapshot_xip(since) u
            where u >= feed_tally.xid and pg_visible_in_snapshot(u, until) order by u loop
    select count(*) as entries, coalesce(bit_xor(e.position), 0) as positions, max(e.position) as last
      into part
      from (
        select e.position
          from taskledger.event e
         where (e.xid, e.position) > (x, case when x = feed_tally.xid then greatest(feed_tally.position, floor)
                                              else floor end)
           and (e.xid, e.position) <= (x, 9223372036854775807)
         order by e.xid, e.position
         limit how_many - feed_tally.entries) e;
    if part.entries > 0 then
      entries := feed_tally.entries + part.entries; events := feed_tally.entries;
      positions := feed_tally.positions # part.positions;
      xid := x; "position" := part.last;
    end if;
    exit when feed_tally.entries >= how_many;
  end loop;
  select count(*) as entries, count(*) filter (where s.seen) as events,
         coalesce(bit_xor(s.position) filter (where s.seen), 0) as positions,
         coalesce((array_agg(s.xid))[count(*)], feed_tally.xid) as xid,
         coalesce((array_agg(s.position))[count(*)], feed_tally.position) as "position"
    into part
    from (
      select e.xid, e.position, e.position > floor and pg_visible_in_snapshot(e.xid, until) as seen
        from taskledger.event e
       where (e.xid, e.position) > (lower, lower_position) and e.xid < pg_snapshot_xmax(until)
       order by e.xid, e.position
       limit how_many - feed_tally.entries) s;
  entries := feed_tally.entries + part.entries;
  events := feed_tally.events + part.events;
  positions := feed_tally.positions # part.positions;
  xid := part.xid; "position" := part.position;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.feed_tally(pg_snapshot, pg_snapshot, integer, xid8, bigint) is
  'Counts the events between two snapshots by the definition of a snapshot, to audit the deliveries of a feed.';

-- A feed records its last audit with its next page, so on a quiet ledger the newest row contains unaudited events. The
-- archive audits them instead of the feed, as internal/feed/audit.go does: fewer events than were read are no fault if
-- the archive has removed some of them. A million events take some 0.3 s; more wait for the feed. An updated row
-- becomes slow to read, but a row is updated once, and only if it holds tasks. Runs with its owner's rights: the role
-- archiver may not change cursors. Indexes: primary key, (xid, position).
-- +goose StatementBegin
create function taskledger_internal.audit_cursors() returns integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  most constant integer := 1000000;
  c record;
  tally record;
  cursors integer := 0;
begin
  for c in
    select n.reader, n.n, n.audited, n.seen, n.unaudited, n.unaudited_xor
      from (select distinct on (r.reader) r.* from taskledger.cursor r order by r.reader, r.n desc) n
      join taskledger.cursors v on v.reader = n.reader and v.n = n.n
     where n.audited is not null and n.until is null and v.is_local and n.reader not in ('seal', 'line')
  loop
    select t.entries, t.events, t.positions into tally
      from taskledger_internal.feed_tally(c.audited, c.seen, most, '0', 0) t;
    if tally.entries < most and (
         tally.events = c.unaudited and tally.positions = c.unaudited_xor
         or tally.events < c.unaudited
            and exists (select from taskledger_internal.archived_beyond(c.audited, null))) then
      update taskledger.cursor u
         set audited = null, unaudited = 0, unaudited_xor = 0, xid = pg_current_xact_id()
       where u.reader = c.reader and u.n = c.n;
      cursors := cursors + 1;
    end if;
  end loop;
  return cursors;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.audit_cursors() is
  'Audits the events that readers of the feed have read and not audited, by their newest cursor rows, and records it. '
  'Returns the number of cursors whose events it found.';

-- An event that is visible in seen is visible in until. Each argument but position stands here once: otherwise the
-- function would not be inlined where an argument is a subquery, and a call costs twenty times as much.
-- +goose StatementBegin
create function taskledger_internal.feed_passed(xid xid8, "position" bigint, floor bigint, seen pg_snapshot,
                                                until pg_snapshot, after_position bigint) returns boolean
language sql immutable parallel safe
return coalesce(pg_visible_in_snapshot(
  case when feed_passed.position <= feed_passed.floor then '3'::xid8 else feed_passed.xid end,
  coalesce(case when feed_passed.position <= feed_passed.after_position then feed_passed.until end, feed_passed.seen)),
  false);
-- +goose StatementEnd

comment on function taskledger_internal.feed_passed(xid8, bigint, bigint, pg_snapshot, pg_snapshot, bigint) is
  'Reports whether a cursor (its columns seen, until, after_position) has passed an event (its xid and '
  'position), with floor as feed_floor() returns it. Null for the event means false, null for until no open window.';

-- Three arms, where the feed has two: late events below the window, events within the passed part of the window that
-- are not visible in it, and events above. The cost depends on the events that it counts, not on the ledger's size.
-- Comparing rows, not columns, leaves the planner no index but (xid, position). Planned as feed_page is.
-- +goose StatementBegin
create function taskledger_internal.feed_lag(reader text, how_many integer, out events bigint, out oldest timestamptz)
language plpgsql stable
set search_path = pg_catalog, pg_temp set enable_bitmapscan = off set enable_seqscan = off
set plan_cache_mode = force_generic_plan set jit = off as $$
begin
  with newest as materialized (
    select c.seen, c.seen_top, c.seen_bound, c.until, c.bound, c.after_position,
           taskledger_internal.feed_floor() as floor
      from (select n.* from taskledger.cursors n where n.reader = feed_lag.reader order by n.n desc limit 1) c
     where c.is_local
  )
  select count(*), min(p.recorded_at)
    into events, oldest
    from (
      (select late.recorded_at
         from newest c
        cross join lateral taskledger_internal.late_xids(c.seen, c.seen_bound) x
        cross join lateral (
          select e.position, e.recorded_at
            from taskledger.event e
           where (e.xid, e.position) > (x, c.floor) and (e.xid, e.position) <= (x, c.seen_top)
             and (c.until is null or e.position > c.after_position or not pg_visible_in_snapshot(x, c.until))
           order by e.xid, e.position
           limit how_many) late
        limit how_many)
      union all
      (select unseen.recorded_at
         from newest c
        cross join lateral taskledger_internal.late_xids(c.until, c.bound) x
        cross join lateral (
          select e.position, e.recorded_at
            from taskledger.event e
           where (e.xid, e.position) > (x, greatest(c.seen_top, c.floor))
             and (e.xid, e.position) <= (x, c.after_position)
             and not pg_visible_in_snapshot(x, c.until)
           order by e.xid, e.position
           limit how_many) unseen
        where c.until is not null
        limit how_many)
      union all
      (select e.recorded_at
         from taskledger.event e
        where e.position > coalesce((select greatest(c.seen_top, c.after_position) from newest c), 0)
        order by e.position
        limit how_many)
      limit how_many) p;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.feed_lag(text, integer) is
  'Returns how many committed events a reader of the feed has not passed, at most how_many, and when the '
  'oldest of them was recorded. A reader without a cursor in this database has passed none.';
