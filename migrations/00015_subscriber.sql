-- Subscribers: the feed for programs in any language, and where each subscriber continues.
-- Owner: package internal/feed. No tables: the place of the subscriber mails is the cursor of the reader
-- subscriber/mails, and whether it is paused is in the mark of that row. Rows are only appended. A subscriber belongs
-- to the login that first reads as it, or makes it by a move.

-- +goose Up

-- A subscriber appends cursor rows with its own prefix: see roles.sql. All others belong to the services.
alter table taskledger.cursor enable row level security;
create policy readable on taskledger.cursor for select using (true);

-- +goose StatementBegin
create function taskledger_internal.subscriber_reader(subscriber text) returns text
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
  if subscriber is null or subscriber !~ '^[A-Za-z0-9_-]{1,64}$' then
    raise exception 'taskledger: invalid subscriber %: must be 1 to 64 of A-Z, a-z, 0-9, _ and -',
      coalesce(quote_literal(left(subscriber, 100)), 'null')
      using errcode = 'invalid_parameter_value';
  end if;
  return 'subscriber/' || subscriber;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.subscriber_reader(text) is
  'Returns the reader of a subscriber in the table cursor, and raises an error for an invalid name.';

-- A window begins, on a primary, with a snapshot that is newer than everything the reader has seen, and its bound is
-- drawn afterwards. So each statement must see the latest commits, and the transaction must not have an xid.
-- +goose StatementBegin
create function taskledger_internal.check_window(op text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if pg_is_in_recovery() then
    raise exception 'taskledger: the database is a standby' using errcode = 'read_only_sql_transaction',
      hint = 'Connect to the primary.';
  end if;
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception 'taskledger: % needs a READ COMMITTED transaction', op using errcode = 'active_sql_transaction',
      hint = 'begin isolation level read committed';
  end if;
  if pg_current_xact_id_if_assigned() is not null then
    raise exception 'taskledger: % must come before anything is written in its transaction', op
      using errcode = 'active_sql_transaction', hint = 'Commit before, or call it first in a transaction.';
  end if;
  if taskledger_internal.foreign_position() is not null then
    raise exception 'taskledger: there are events of another database' using
      errcode = 'object_not_in_prerequisite_state', hint = 'After a restore: taskledger rebase';
  end if;
  if (select s.seqcache from pg_sequence s where s.seqrelid = 'taskledger.event_position_seq'::regclass) <> 1 then
    raise exception 'taskledger: the sequence taskledger.event_position_seq has a cache' using
      errcode = 'object_not_in_prerequisite_state',
      hint = 'alter sequence taskledger.event_position_seq cache 1; then end the sessions that have inserted';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_window(text) is
  'Raises an error if a window cannot be opened now.';

-- The policies of roles.sql call it for each cursor row of a subscriber. Index: primary key, backwards.
-- +goose StatementBegin
create function taskledger_internal.subscriber_login(reader text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return (select c.login from taskledger.cursor c where c.reader = subscriber_login.reader order by c.n desc limit 1);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.subscriber_login(text) is
  'Returns the login that a reader of the feed belongs to; null: none.';

-- The policies of roles.sql call it, so that no login's row breaks functions that read all subscribers. A bound may lie
-- above every snapshot while its transaction runs, and a REPEATABLE READ transaction keeps an old snapshot: then
-- pg_xact_status decides, which raises an error for an id that was never assigned. The bound was drawn soon after its
-- snapshot, and a reader that is refused for a greater distance gets a new bound at its next window. With a single
-- probe of the primary key.
-- +goose StatementBegin
create function taskledger_internal.is_cursor(reader text, n bigint, seen pg_snapshot, seen_top bigint, seen_bound xid8,
                                              until pg_snapshot, top bigint, bound xid8, after_position bigint,
                                              audited pg_snapshot, origin text, mark json) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  max_late constant integer := 1000000;        -- transaction ids between a snapshot and its bound
  max_snapshot_bytes constant integer := 1048576;
  max_mark_bytes constant integer := 65536;
  last constant bigint := coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0);
  next_of_snapshots constant xid8 := greatest(pg_snapshot_xmax(seen), pg_snapshot_xmax(until),
                                              pg_snapshot_xmax(audited));
  newest constant xid8 := greatest(seen_bound, bound, (next_of_snapshots::text::numeric - 1)::text::xid8);
begin
  if reader !~ '^subscriber/[A-Za-z0-9_-]{1,64}$' or octet_length(origin) > 100
     or num_nulls(until, top, bound) not in (0, 3)
     or least(seen_top, top, after_position) < 0 or greatest(seen_top, top, after_position) > last
     or greatest(pg_column_size(seen), pg_column_size(until), pg_column_size(audited)) > max_snapshot_bytes
     or seen_bound::text::numeric - pg_snapshot_xmax(seen)::text::numeric > max_late
     or bound::text::numeric - pg_snapshot_xmax(until)::text::numeric > max_late
     or n < 1 or n > 1 + coalesce((select c.n from taskledger.cursor c where c.reader = is_cursor.reader
                                    order by c.n desc limit 1), 0) then
    return false;
  end if;
  if newest >= pg_snapshot_xmax(pg_current_snapshot())
     and newest > coalesce(pg_current_xact_id_if_assigned(), '0') then
    begin
      perform pg_xact_status(newest);
    exception
      when invalid_parameter_value then
        return false;
    end;
  end if;
  if mark is not null then
    begin
      return octet_length(mark::text) <= max_mark_bytes and jsonb_typeof(mark::jsonb) = 'object';
    exception
      when others then
        return false;
    end;
  end if;
  return true;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.is_cursor(text, bigint, pg_snapshot, bigint, xid8, pg_snapshot, bigint, xid8,
                                                  bigint, pg_snapshot, text, json) is
  'Reports whether a cursor row of a subscriber is well-formed: its name, transaction ids and positions that '
  'this database has assigned, the next n, and a mark that every reader can read.';

-- +goose StatementBegin
create function taskledger_internal.check_owner(subscriber text, login text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if login <> session_user and row_security_active('taskledger.cursor') then
    raise exception 'taskledger: subscriber % belongs to the login %', subscriber, login
      using errcode = 'insufficient_privilege',
      hint = format('Connect as that login, or as an operator: taskledger seek subscriber %s --give %s', subscriber,
                    session_user);
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_owner(text, text) is
  'Raises an error if a subscriber does not belong to the session''s login.';

-- Compare-and-set, as internal/feed/sql/cursor_append.sql: row n + 1 is inserted if row n is the newest. 0 for n is a
-- reader without a row. Locks row n against deletion; waits for a concurrent insert of the same n. The lock does not
-- find the rows of a subscriber of another login.
-- +goose StatementBegin
create function taskledger_internal.append_cursor(reader text, n bigint, seen pg_snapshot, seen_top bigint,
                                                  seen_bound xid8, until pg_snapshot, top bigint, bound xid8,
                                                  after_position bigint, mark json, login text)
returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, until, top, bound, after_position, origin,
                                 mark, login)
  select append_cursor.reader, append_cursor.n + 1, append_cursor.seen, append_cursor.seen_top,
         append_cursor.seen_bound, append_cursor.until, append_cursor.top, append_cursor.bound,
         append_cursor.after_position, taskledger_internal.origin(), append_cursor.mark,
         append_cursor.login
    from (
     select coalesce((select c.n
                        from taskledger.cursor c
                       where c.reader = append_cursor.reader
                       order by c.n desc
                       limit 1
                         for key share), 0) as n) newest
   where newest.n = append_cursor.n
      on conflict do nothing;
  if found and append_cursor.n % 1000 = 0 then
    perform taskledger_internal.thin_cursor(append_cursor.reader, append_cursor.n - 10000);
  elsif not found then
    perform taskledger_internal.check_owner(substr(c.reader, 12), c.login)
       from (select m.reader, m.n, m.login from taskledger.cursor m where m.reader = append_cursor.reader
              order by m.n desc limit 1) c
      where c.n = append_cursor.n;
    return false;
  end if;
  return true;
end
$$;
-- +goose StatementEnd

comment on function
  taskledger_internal.append_cursor(text, bigint, pg_snapshot, bigint, xid8, pg_snapshot, bigint, xid8, bigint, json,
                                    text) is
  'Appends cursor row n + 1 of a reader if row n is its newest, and reports whether it did.';

-- A subscriber needs none of its old rows, nor does the seal. With its owner's rights: a role with the privilege DELETE
-- may lock the whole table. The services thin their own rows (internal/feed/sql/cursor_thin.sql). Index: primary key,
-- from above.
-- +goose StatementBegin
create function taskledger_internal.thin_cursor(reader text, above bigint) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  newest bigint := (select c.n from taskledger.cursor c where c.reader = thin_cursor.reader order by c.n desc limit 1);
begin
  if newest is null or not (starts_with(reader, 'subscriber/') or reader = 'seal') then
    return above;
  end if;
  delete from taskledger.cursor c
   where c.reader = thin_cursor.reader and c.n > thin_cursor.above and c.n < newest - 100;
  return greatest(above, newest - 101);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.thin_cursor(text, bigint) is
  'Removes rows of the cursor of a subscriber or of the seal that it no longer needs, and returns the n to '
  'continue above.';

-- A process of a subscriber appends a row in the transaction of its handler. Each of these commits may be followed by
-- another transaction at once, so the newest row is locked until it is the newest one. A handler that hangs is waited
-- for no longer than the timeout. Draws an xid. Locks the row. Index: primary key, backwards.
-- +goose StatementBegin
create function taskledger_internal.lock_cursor(reader text) returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '5s' as $$
declare
  newest bigint;
  locked bigint;
begin
  loop
    newest := (select c.n from taskledger.cursor c where c.reader = lock_cursor.reader order by c.n desc limit 1);
    if newest is null or newest = locked then
      return newest;
    end if;
    perform from taskledger.cursor c where c.reader = lock_cursor.reader and c.n = newest for update;
    locked := newest;
  end loop;
exception
  when lock_not_available then
    raise exception 'taskledger: subscriber % has been handling events in a transaction for more than 5 s',
      substr(reader, 12) using errcode = 'lock_not_available',
      hint = 'Try again when its handler is done, or end its process before.';
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.lock_cursor(text) is
  'Locks the newest cursor row of a subscriber, so that no process moves it, and returns its n; null: none.';

-- The algorithm of internal/feed/sql/window.sql: snapshot, top and bound, in this order. The window is kept in the
-- cursor, so each call reads from the same window until its last event was passed, whatever happens to the caller.
-- +goose StatementBegin
create function taskledger.read_feed(reader text, how_many integer default 100)
returns table (page text, "position" bigint, kind text, biz_id text, version integer, type text, attempt integer,
               shard smallint, recorded_at timestamptz, actor text, login text, data_version smallint,
               priority smallint, partition text, run integer, data json, meta json)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  of_cursor text := taskledger_internal.subscriber_reader(reader);
  incarnation text := taskledger_internal.incarnation();
  c record;
  snapshot pg_snapshot;
  last bigint;
begin
  if how_many is null or how_many not between 1 and 10000 then
    raise exception 'taskledger: invalid how_many %: must be between 1 and 10000', coalesce(how_many::text, 'null')
      using errcode = 'invalid_parameter_value';
  end if;
  perform taskledger_internal.check_window('read_feed');
  select n.n, n.seen, n.seen_top, n.seen_bound, n.until, n.top, n.bound, n.after_position, n.mark, n.login, n.is_local
    into c
    from taskledger.cursors n
   where n.reader = of_cursor
   order by n.n desc
   limit 1;
  if c.n is null then
    select 0::bigint as n, '3:3:'::pg_snapshot as seen, 0::bigint as seen_top, '3'::xid8 as seen_bound,
           null::pg_snapshot as until, null::bigint as top, null::xid8 as bound, 0::bigint as after_position,
           null::json as mark, null::text as login, true as is_local into c;
  elsif not c.is_local then
    raise exception 'taskledger: the place of subscriber % belongs to another database', reader
      using errcode = 'object_not_in_prerequisite_state', hint = 'After a restore: taskledger rebase';
  elsif c.mark ->> 'paused' = 'true' then
    return;
  end if;
  perform taskledger_internal.check_owner(reader, c.login);
  if c.until is not null then
    if incarnation is null then -- after a crash or a restore
      perform taskledger_internal.begin_incarnation();
      return; -- the next call can open a window
    end if;
    return query
    select c.n || '@' || incarnation, e.position, e.kind, e.biz_id, e.version, e.type::text, e.attempt, e.shard,
           e.recorded_at, e.actor, l.name, e.data_version, e.priority, e.partition, e.run, e.data,
           e.meta
      from taskledger_internal.feed_page(c.seen, c.seen_top, c.seen_bound, c.until, c.top, c.after_position,
                                         read_feed.how_many) e
      left join taskledger.logins l on l.id = e.login_id;
    if found then
      return;
    end if;
    c.seen := c.until; c.seen_top := c.top; c.seen_bound := c.bound;
  end if;
  snapshot := pg_current_snapshot();
  last := coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0);
  if last <= c.seen_top and not exists (
       select from taskledger_internal.late_xids(c.seen, c.seen_bound) x where pg_visible_in_snapshot(x, snapshot)) then
    return; -- an idle call writes nothing
  end if;
  if not taskledger_internal.append_cursor(of_cursor, c.n, c.seen, c.seen_top, c.seen_bound, snapshot, last,
                                           pg_current_xact_id(), 0, c.mark, coalesce(c.login, session_user)) then
    return; -- another session has opened the window
  end if;
  if incarnation is null then
    perform taskledger_internal.begin_incarnation();
    incarnation := taskledger_internal.incarnation();
  end if;
  return query
  select c.n + 1 || '@' || incarnation, e.position, e.kind, e.biz_id, e.version, e.type::text, e.attempt, e.shard,
         e.recorded_at, e.actor, l.name, e.data_version, e.priority, e.partition, e.run, e.data,
           e.meta
    from taskledger_internal.feed_page(c.seen, c.seen_top, c.seen_bound, snapshot, last, 0, read_feed.how_many) e
    left join taskledger.logins l on l.id = e.login_id;
end
$$;
-- +goose StatementEnd

comment on function taskledger.read_feed(text, integer) is
  'Returns the next committed events of a subscriber, in the order of the feed: none is missing, and each task''s '
  'events are in order. It returns the same events until advance_feed passes them. Call it first in a READ COMMITTED '
  'transaction, or by itself, on the primary.';

-- The incarnation is compared because a crash, or the promotion of a standby, may undo the row and assign n again.
-- +goose StatementBegin
create function taskledger.advance_feed(reader text, page text, "position" bigint) returns text
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  of_cursor text := taskledger_internal.subscriber_reader(reader);
  c record;
begin
  if page is null or page !~ '^[0-9]{1,18}@.' or "position" is null then
    raise exception 'taskledger: invalid page %: must be one that read_feed or advance_feed returned',
      coalesce(quote_literal(left(page, 100)), 'null') using errcode = 'invalid_parameter_value';
  end if;
  select n.n, n.seen, n.seen_top, n.seen_bound, n.until, n.top, n.bound, n.after_position, n.mark, n.login
    into c
    from taskledger.cursor n
   where n.reader = of_cursor and n.n = split_part(page, '@', 1)::bigint;
  if c.until is not null and ("position" <= c.after_position or "position" > c.top) then
    raise exception 'taskledger: invalid position %: must belong to an event of the page', "position"
      using errcode = 'invalid_parameter_value';
  end if;
  perform taskledger_internal.check_owner(reader, c.login);
  if c.until is null or taskledger_internal.incarnation() is distinct from substr(page, strpos(page, '@') + 1)
     or not taskledger_internal.append_cursor(of_cursor, c.n, c.seen, c.seen_top, c.seen_bound, c.until, c.top, c.bound,
                                              "position", c.mark, coalesce(c.login, session_user)) then
    raise exception 'taskledger: subscriber % has been moved since this page was read', reader
      using errcode = 'TL005', hint = 'Roll back, and call read_feed again.';
  end if;
  return c.n + 1 || '@' || split_part(page, '@', 2);
end
$$;
-- +goose StatementEnd

comment on function taskledger.advance_feed(text, text, bigint) is
  'Passes the events of a page up to a position, in the transaction of their effect, and returns the page for the '
  'rest. SQLSTATE TL005 if another session has moved the subscriber: roll back.';

-- Moves a subscriber, and makes it if it is missing. A session that works as this subscriber is superseded.
-- +goose StatementBegin
create function taskledger.seek_feed(reader text, "position" bigint default null, at timestamptz default null,
                                     only_new boolean default false)
returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  of_cursor text := taskledger_internal.subscriber_reader(reader);
  owner constant text := case when not has_function_privilege('taskledger.give_subscriber(text, text)', 'execute')
                           then session_user::text end; -- an operator makes it for another login
  newest bigint;
  c record;
  p record;
begin
  if "position" is not null and at is not null then
    raise exception 'taskledger: position and at must not both be given' using errcode = 'invalid_parameter_value';
  elsif at > clock_timestamp() then
    raise exception 'taskledger: invalid time %: must not be in the future', at
      using errcode = 'invalid_parameter_value';
  end if;
  perform taskledger_internal.check_window('seek_feed');
  if only_new and exists (select from taskledger.cursor n where n.reader = of_cursor) then
    return false;
  end if;
  if "position" = 0 then
    select '3:3:'::pg_snapshot as seen, 0::bigint as seen_top, '3'::xid8 as seen_bound, null::pg_snapshot as until,
           null::bigint as top, 0::bigint as after_position, null::xid8 as bound into p;
  elsif "position" is not null then
    select * into p from taskledger_internal.place(null, seek_feed.position);
    if p.seen is null then
      raise exception 'taskledger: invalid position %: no event has it', "position"
        using errcode = 'TL006', hint = 'An event that was archived or never committed cannot be a place.';
    end if;
  elsif at is not null then
    select * into p from taskledger_internal.place(seek_feed.at, null);
  else
    select pg_current_snapshot() as seen, null::bigint as seen_top, null::xid8 as seen_bound,
           null::pg_snapshot as until, null::bigint as top, 0::bigint as after_position, null::xid8 as bound into p;
    p.seen_top := coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0);
    p.seen_bound := pg_current_xact_id();
  end if;
  if p.until is not null and p.bound is null then
    p.top := greatest(p.top, coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0));
    p.bound := pg_current_xact_id();
  end if;
  newest := taskledger_internal.lock_cursor(of_cursor);
  if only_new and newest is not null then
    return false;
  end if;
  if newest is not null and taskledger_internal.has_tables(of_cursor) then
    raise exception 'taskledger: subscriber % has tables, which a move would make wrong', reader
      using errcode = 'object_not_in_prerequisite_state',
            hint = 'taskledger rebuild tables NAME; to leave out an event: taskledger discard parked --subscriber';
  end if;
  select n.n, n.mark, n.login into c from taskledger.cursor n where n.reader = of_cursor and n.n = newest;
  if not taskledger_internal.append_cursor(of_cursor, coalesce(c.n, 0), p.seen, p.seen_top, p.seen_bound, p.until,
                                           p.top, p.bound, p.after_position, c.mark, coalesce(c.login, owner)) then
    raise exception 'taskledger: subscriber % is being moved by another session', reader
      using errcode = 'serialization_failure', hint = 'Try again.';
  end if;
  return true;
end
$$;
-- +goose StatementEnd

comment on function taskledger.seek_feed(text, bigint, timestamptz, boolean) is
  'Moves a subscriber to after the event at a position (0: the beginning), to a time, or to the present, and makes it '
  'if it is missing. With only_new it does not move an existing subscriber, and returns false.';

-- A paused subscriber gets no events. A session that works as it is superseded, and finds the mark.
-- +goose StatementBegin
create function taskledger_internal.mark_feed(reader text, mark json) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  of_cursor text := taskledger_internal.subscriber_reader(reader);
  newest bigint;
  c record;
begin
  newest := taskledger_internal.lock_cursor(of_cursor);
  select n.n, n.seen, n.seen_top, n.seen_bound, n.until, n.top, n.bound, n.after_position, n.login into c
    from taskledger.cursor n where n.reader = of_cursor and n.n = newest;
  if c.n is null then
    return false;
  end if;
  if not taskledger_internal.append_cursor(of_cursor, c.n, c.seen, c.seen_top, c.seen_bound, c.until, c.top, c.bound,
                                           c.after_position, mark_feed.mark, c.login) then
    raise exception 'taskledger: subscriber % is being moved by another session', reader
      using errcode = 'serialization_failure', hint = 'Try again.';
  end if;
  return true;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.mark_feed(text, json) is
  'Replaces the mark of a subscriber, such as {"paused":true}, leaves its place, and reports whether there '
  'is such a subscriber.';

-- Runs with its owner's rights: a role may only write its own login.
-- +goose StatementBegin
create function taskledger.give_subscriber(subscriber text, login text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  of_cursor text := taskledger_internal.subscriber_reader(subscriber);
  newest bigint;
  c record;
begin
  if not exists (select from pg_roles r where r.rolname = give_subscriber.login) then
    raise exception 'taskledger: invalid login %: there is no such role',
      coalesce(quote_literal(left(give_subscriber.login, 100)), 'null') using errcode = 'invalid_parameter_value';
  end if;
  newest := taskledger_internal.lock_cursor(of_cursor);
  select n.n, n.seen, n.seen_top, n.seen_bound, n.until, n.top, n.bound, n.after_position, n.mark into c
    from taskledger.cursor n where n.reader = of_cursor and n.n = newest;
  if c.n is null then
    return false;
  end if;
  if not taskledger_internal.append_cursor(of_cursor, c.n, c.seen, c.seen_top, c.seen_bound, c.until, c.top, c.bound,
                                           c.after_position, c.mark, give_subscriber.login) then
    raise exception 'taskledger: subscriber % is being moved by another session', subscriber
      using errcode = 'serialization_failure', hint = 'Try again.';
  end if;
  return true;
end
$$;
-- +goose StatementEnd

comment on function taskledger.give_subscriber(text, text) is
  'Gives a subscriber to another login, leaves its place, and reports whether there is such a subscriber.';

-- Runs with its owner's rights: see thin_cursor. It takes any name, so that nothing is left that no command removes.
-- +goose StatementBegin
create function taskledger.remove_subscriber(subscriber text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform taskledger_internal.lock_cursor('subscriber/' || subscriber);
  perform taskledger_internal.remove_subscriber_state('subscriber/' || subscriber);
  perform taskledger_internal.remove_subscriber_parked('subscriber/' || subscriber, null, null);
  delete from taskledger.cursor c where c.reader = 'subscriber/' || subscriber;
  return found;
end
$$;
-- +goose StatementEnd

comment on function taskledger.remove_subscriber(text) is
  'Removes a subscriber, and reports whether there was one. Its tables stay.';

-- The newest row of each, by a step from name to name: the cost does not grow with the number of rows.
create view taskledger.subscribers as
with recursive name as (
  (select c.reader from taskledger.cursor c where c.reader >= 'subscriber/' and c.reader < 'subscriber0'
    order by c.reader limit 1)
  union all
  select (select c.reader from taskledger.cursor c where c.reader > n.reader and c.reader < 'subscriber0'
           order by c.reader limit 1)
    from name n
   where n.reader is not null
)
select substr(n.reader, 12) as name, c.n, coalesce(c.mark ->> 'paused' = 'true', false) as is_paused, c.mark,
       greatest(c.after_position, c.seen_top) as "position", c.recorded_at as moved_at, c.is_local, c.login
  from name n
 cross join lateral (
   select m.n, m.mark, m.after_position, m.seen_top, m.recorded_at, m.is_local, m.login
     from taskledger.cursors m
    where m.reader = n.reader
    order by m.n desc
    limit 1) c
 where n.reader is not null;

comment on view taskledger.subscribers is
  'The subscribers: each continues about at a position, unless it is paused. taskledger_internal.feed_lag counts the '
  'events that it has not passed.';

-- Runs with its owner's rights: no role may take the lock, which makes sessions of one login count one after the other.
-- A volatile function sees the rows that the calling statement has inserted. Index: primary key, from name to name.
-- +goose StatementBegin
create function taskledger_internal.may_add_subscriber(reader text, n bigint) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  max_subscribers constant integer := 250;
  counted integer;
begin
  if n > 1 then
    return true;
  end if;
  insert into taskledger.mutex (name) values ('subscribers/' || session_user) on conflict do nothing;
  perform from taskledger.mutex m where m.name = 'subscribers/' || session_user for update;
  select count(*) into counted
    from (select from taskledger.subscribers s
           where s.login = session_user and s.name <> substr(may_add_subscriber.reader, 12)
           limit max_subscribers) own;
  if counted >= max_subscribers then
    raise exception 'taskledger: login % has % subscribers, and may have no more', session_user, counted
      using errcode = 'insufficient_privilege',
            hint = 'remove one: taskledger delete subscriber NAME; or connect as another login';
  end if;
  return true;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.may_add_subscriber(text, bigint) is
  'Returns true if the session''s login may have one more subscriber, or the row is not its subscriber''s '
  'first. Raises an error otherwise: reading the lags of all subscribers must not take long because of one login.';

revoke all on all functions in schema taskledger, taskledger_internal from public;
