-- The ledger: the events, their vocabulary and the settings.
-- Owner: package ledger.
--
--   event    written by ledger; read by every package and every program: it is the published interface
--   login    written by ledger, through the function login_id
--   setting  written here, and by operators in SQL; read by ledger
--
-- Other packages call the function installation and read the view logins.

-- +goose Up

-- +goose StatementBegin
do $$
begin
  if current_setting('server_version_num')::integer < 150000 then
    raise exception 'taskledger needs PostgreSQL 15 or later, this server is %', current_setting('server_version')
      using hint = 'upgrade the server, or name another one in DATABASE_URL';
  end if;
  if current_setting('server_encoding') <> 'UTF8' then
    raise exception 'taskledger needs a database with encoding UTF8, this one has %', current_setting('server_encoding')
      using hint = 'create the database with: create database <name> encoding ''UTF8'' template template0';
  end if;
end
$$;
-- +goose StatementEnd

comment on schema taskledger is
  'Tasks as an append-only log of events. Start with the function enqueue and the table event.';

-- An owner without CREATE on the database has had both schemas made for it.
-- +goose StatementBegin
do $$
begin
  if to_regnamespace('taskledger_internal') is null then
    create schema taskledger_internal;
  elsif exists (select from pg_proc p where p.pronamespace = 'taskledger_internal'::regnamespace) then
    raise exception 'schema taskledger_internal has the functions of a ledger that was dropped'
      using hint = 'drop this schema, too: drop schema taskledger_internal cascade';
  end if;
end
$$;
-- +goose StatementEnd

comment on schema taskledger_internal is
  'Functions and views for statements, policies and functions of schema taskledger. They may change with each version.';

create type taskledger.event_type as enum (
  'enqueued', 'scheduled', 'lined_up', 'released', 'started', 'progressed', 'succeeded', 'failed',
  'interrupted', 'snoozed', 'buried', 'cancelled', 'expired', 'discarded');

comment on type taskledger.event_type is
  'What happened to a task. taskledger.state_after returns the state that follows.';

create type taskledger.task_state as enum (
  'available', 'scheduled', 'in_line', 'running', 'retrying', 'succeeded', 'dead', 'cancelled', 'expired',
  'discarded');

comment on type taskledger.task_state is 'The state of a task, after its last event.';

-- Enqueue reads the two limits only for a payload over 4 KiB: a smaller limit would not take effect.
create table taskledger.setting (
  name  text collate "C" primary key,
  value text not null,
  constraint setting_min_bytes
    check (name not in ('max_args_bytes', 'max_meta_bytes') or value::integer >= 4096));

comment on table taskledger.setting is
  'Settings that all programs share: installation, max_args_bytes, max_meta_bytes.';

insert into taskledger.setting (name, value) values
  ('installation', gen_random_uuid()::text),  -- identifies the ledger: source of CloudEvents, metadata of the stream
  ('max_args_bytes', '262144'),
  ('max_meta_bytes', '16384');

-- +goose StatementBegin
create function taskledger_internal.installation() returns text
language sql stable parallel safe
begin atomic
  select s.value from taskledger.setting s where s.name = 'installation';
end;
-- +goose StatementEnd

comment on function taskledger_internal.installation() is
  'Returns the id of this ledger, which its stream and its CloudEvents carry.';

-- With the caller's rights. A migration tool of the user may have another table.
-- +goose StatementBegin
create function taskledger.schema_version() returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if to_regclass('taskledger.migration') is null then
    return 0;
  end if;
  return (select coalesce(max(m.version_id), 0) from taskledger.migration m where m.is_applied);
end
$$;
-- +goose StatementEnd

comment on function taskledger.schema_version() is
  'Returns the number of the last applied migration, or 0 if they were applied without the table migration.';

-- A name may have several rows: transactions that begin with a new login at the same time add one each, so that none
-- waits for another. Each row names the login for good, since events refer to it.
create table taskledger.login (
  id    integer generated always as identity primary key,
  name  text collate "C" not null,
  since timestamptz not null default clock_timestamp());

create index login_name on taskledger.login (name, id);

comment on table taskledger.login is
  'Internal: the names of the logins that wrote events, by the id in event.login_id. A name may have several ids.';

create view taskledger.logins as
select l.id, l.name, l.since from taskledger.login l;

comment on view taskledger.logins is
  'The database logins (session_user) that wrote events, since when, by the id in event.login_id. '
  'A name may have several ids.';

-- session_user and not current_user: neither SET ROLE nor a function with its owner's rights changes it.
-- It notes the id in the session, for session_login, unless this transaction may have added the row: a prepared
-- transaction can be rolled back later, and would leave the note behind.
-- +goose StatementBegin
create function taskledger_internal.login_id() returns integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  found_id integer;
  is_older boolean;
begin
  select l.id, l.since < now() into found_id, is_older from taskledger.login l where l.name = session_user limit 1;
  if found_id is null then
    insert into taskledger.login (name) values (session_user) returning id into found_id;
  elsif is_older then
    perform set_config('taskledger.login_id', found_id::text, false),
            set_config('taskledger.login', session_user, false);
  end if;
  return found_id;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.login_id() is
  'Returns the id of the session''s login, which it adds to the table login if it is not there.';

-- The planner inlines this expression. It costs an insert a tenth of a query of the table. A session can set both
-- settings to anything. The owner may insert any login_id anyway, and for every other role a policy compares the id
-- with the table (00012_rights.sql). So a function with its owner's rights that others may call must not use it: it
-- must query the table, or call login_id.
create function taskledger_internal.session_login() returns integer
language sql volatile
return case when current_setting('taskledger.login', true) = session_user
            then current_setting('taskledger.login_id', true)::integer
            else taskledger_internal.login_id() end;

comment on function taskledger_internal.session_login() is
  'Returns the id of the session''s login from the session''s note, else from login_id.';

-- A statement whose success is acknowledged calls it, so that no crash of the server undoes the statement. Any value
-- but off waits for the disk of this server.
create function taskledger_internal.commit_durably() returns text
language sql volatile
return case when current_setting('synchronous_commit') = 'off'
            then set_config('synchronous_commit', 'on', true) end;

comment on function taskledger_internal.commit_durably() is
  'Makes the commit of this transaction wait for the disk if synchronous_commit is off.';

-- It keeps the session's notes of its login and of the incarnation, because finding them again takes a query. Temporary
-- tables are dropped only if there are any: DISCARD TEMP would cost other sessions a search. DISCARD ALL also drops
-- prepared statements, and must not run in a transaction. Everything is in one condition, because each expression of
-- the function costs a transaction as much as both statements. Names are qualified: code may have left a search_path
-- with objects of the same name, or a temporary table, whose name is also the name of a type.
-- +goose StatementBegin
create function taskledger_internal.reset_session(
  settings    text,
  noted_login text default current_setting('taskledger.login', true),
  noted_id    text default current_setting('taskledger.login_id', true),
  noted_run   text default current_setting('taskledger.incarnation', true)) returns void
language plpgsql volatile as $$
declare
  pairs pg_catalog.text[];
begin
  reset all;
  unlisten *;
  if pg_catalog.num_nulls(pg_catalog.set_config('taskledger.login', noted_login, false),
                          pg_catalog.set_config('taskledger.login_id', noted_id, false),
                          pg_catalog.set_config('taskledger.incarnation', noted_run, false)) is not null
     and pg_catalog.pg_advisory_unlock_all() is not null
     and (pg_catalog.pg_my_temp_schema() operator(pg_catalog.<>) 0 or settings operator(pg_catalog.<>) '{}')
  then
    if pg_catalog.pg_my_temp_schema() operator(pg_catalog.<>) 0 then
      discard temp;
    end if;
    pairs := settings;
    for i in 1 .. pg_catalog.cardinality(pairs) by 2 loop
      perform pg_catalog.set_config(pairs[i], pairs[i operator(pg_catalog.+) 1], false);
    end loop;
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.reset_session(text, text, text, text) is
  'Resets what code has set for the session, and restores these settings: names and values in turn.';

-- xid must stand before position: PostgreSQL computes defaults in the order of the columns, and the
-- feed relies on the transaction id being older than the position.
-- Columns of 8 bytes come first, then columns of 4 and of 2, to avoid padding; then columns of variable length. A null
-- costs nothing. Personal data belongs in actor, data and meta alone: see docs/decisions.md, "Personal data". Vacuum
-- runs after inserts of 1 % of the table, and freezes each page when it first sees it, so that no vacuum has to rewrite
-- the whole table later.
create table taskledger.event (
  xid          xid8 not null default pg_current_xact_id(),
  position     bigint generated always as identity,
  recorded_at  timestamptz not null default clock_timestamp(),
  version      integer not null,
  attempt      integer not null,
  type         taskledger.event_type not null,
  login_id     integer not null default taskledger_internal.session_login(),
  run          integer,
  shard        smallint not null,
  data_version smallint not null default 1,
  priority     smallint not null default 0 check (priority between 0 and 4),
  kind         text collate "C" not null,
  biz_id       text collate "C" not null,
  actor        text,
  order_key    text collate "C",
  partition    text collate "C" check (octet_length(partition) between 1 and 64
                                      and partition !~ '[\u0001-\u001f\u007f-\u009f]'),
  data         json,
  meta         json,
  primary key (kind, biz_id, version),
  unique (position))
  with (autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_freeze_min_age = 0);

comment on table taskledger.event is
  'The ledger: one row for each event of a task (kind, biz_id), numbered by version. '
  'Rows are appended, never changed or deleted.';
comment on column taskledger.event.login_id is
  'The database login (session_user) of the session that wrote the event: an id of the view logins.';
comment on column taskledger.event.run is
  'The number of the run whose args are in data, if the event begins a later run of the task or replaces its args; '
  'null for other events. Version 1 begins run 1.';
comment on column taskledger.event.data_version is
  'The version of the format of data, for programs that read old events. The producer chooses it for args.';
comment on column taskledger.event.priority is
  'The task''s priority from this event on: 1 urgent, 2 high, 3 normal, 4 low; 0: none was given, which means normal. '
  'Each event copies it from the event before, unless an operator reschedules the task with another, or the event '
  'begins a later run or replaces args.';
comment on column taskledger.event.actor is
  'The author of the event, as its writer claims. login_id is recorded by the database.';
comment on column taskledger.event.order_key is
  'The line in which the task stands: of the tasks with this order key, one begins after the other has ended. Null: it '
  'stands in none. Each event copies it from the event before, unless it begins a later run.';
comment on column taskledger.event.partition is
  'The tenant or other group to which the task belongs, 1 to 64 bytes; null: none. The partitions of a kind take '
  'turns. Each event copies it from the event before, unless it begins a later run or replaces args.';

create index event_xid_position on taskledger.event (xid, position);

-- The newest event of each type, and the failures, of a task with a long history: ledger/sql/load_long.sql. Other tasks
-- are not in the index, so that it costs them nothing but the comparison.
create index event_long on taskledger.event (kind, biz_id, type, version) where version > 64;

-- The event that contains the args of a task: the newest in this index, or else version 1. Most tasks are not in it.
create index event_run on taskledger.event (kind, biz_id, version) where run is not null;

-- Lines: where each task took its place, by position and by transaction, and which had the last turn. See
-- 00022_line.sql. Events of tasks without an order key are in none of them.
create index event_line on taskledger.event (order_key, position) where type = 'lined_up';
create index event_line_xid on taskledger.event (xid, order_key, position) where type = 'lined_up';
create index event_turn on taskledger.event (order_key, position)
 where order_key is not null and type = 'released' and starts_with(data::text, '{"reason":"turn"');
create index event_line_dead on taskledger.event (position) where order_key is not null and type = 'buried';
create index event_line_scheduled on taskledger.event (order_key, position)
 where order_key is not null and type = 'scheduled';

-- The snoozes of less than a second: internal/operator/sql/snoozed.sql.
create index event_short_snooze on taskledger.event (position)
 where type = 'snoozed' and strpos(data::text, '"short_in_a_row"') > 0;

-- +goose StatementBegin
create function taskledger_internal.args_version(kind text, biz_id text) returns integer
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return coalesce((
    select e.version
      from taskledger.event e
     where e.kind = args_version.kind and e.biz_id = args_version.biz_id and e.run is not null
     order by e.version desc
     limit 1), 1);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.args_version(text, text) is
  'Returns the version of the event that contains the args of a task.';

-- +goose StatementBegin
create function taskledger_internal.refuse_change() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'taskledger.% is append-only: % refused', tg_table_name, tg_op
    using errcode = 'restrict_violation',
          hint = 'correct a fact by appending another event: events are never changed or removed';
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.refuse_change() is 'The trigger that keeps a table append-only.';

create trigger event_append_only
  before update or delete or truncate on taskledger.event
  for each statement execute function taskledger_internal.refuse_change();

-- The same table as ledger.Transitions in Go.
-- +goose StatementBegin
create function taskledger.state_after(type taskledger.event_type) returns taskledger.task_state
language sql immutable parallel safe
return case type
  when 'enqueued'    then 'available'::taskledger.task_state
  when 'scheduled'   then 'scheduled'
  when 'lined_up'    then 'in_line'
  when 'released'    then 'available'
  when 'started'     then 'running'
  when 'progressed'  then 'running'
  when 'succeeded'   then 'succeeded'
  when 'failed'      then 'retrying'
  when 'interrupted' then 'available'
  when 'snoozed'     then 'scheduled'
  when 'buried'      then 'dead'
  when 'cancelled'   then 'cancelled'
  when 'expired'     then 'expired'
  when 'discarded'   then 'discarded'
end;
-- +goose StatementEnd

comment on function taskledger.state_after(taskledger.event_type) is
  'Returns the state of a task whose last event has this type.';

-- +goose StatementBegin
create function taskledger.shard_of(biz_id text) returns smallint
language sql immutable strict parallel safe
return ((('x' || substr(md5(biz_id), 1, 8))::bit(32)::bigint & 4294967295) % 64)::smallint;
-- +goose StatementEnd

comment on function taskledger.shard_of(text) is
  'Returns the default shard of a task, 0 to 63: the first 32 bits of md5(biz_id), modulo 64.';

-- A statement whose answer depends on missing rows calls it in a condition without columns, so once. A standby may lag,
-- and then lacks a task or its last event.
-- +goose StatementBegin
create function taskledger_internal.is_primary() returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if pg_is_in_recovery() then
    raise exception 'taskledger: the database is a standby' using errcode = 'read_only_sql_transaction';
  end if;
  return true;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.is_primary() is
  'Returns true, and raises an error on a standby.';

-- A sequence that was set back assigns positions that events already have. Its row is read instead of
-- pg_sequence_last_value, which is null after a restart. It is not indexed, so with enable_seqscan off the plan would
-- be compiled, which takes 85 ms. Index: position, backwards, one row.
-- +goose StatementBegin
create function taskledger_internal.position_behind() returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
begin
  return coalesce((
    select e.position
      from (select e.position from taskledger.event e order by e.position desc limit 1) e
     cross join taskledger.event_position_seq s
     where e.position > s.last_value or e.position = s.last_value and not s.is_called), 0);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.position_behind() is
  'Returns the newest position if the sequence of positions is behind it, so that enqueues fail, else 0.';

-- Of a table of 00023_archive.sql. Index: archive_batch_total, backwards, one row.
-- +goose StatementBegin
create function taskledger_internal.archived_tasks(kind text, state taskledger.task_state) returns bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return coalesce((
    select b.total
      from taskledger.archive_batch b
     where b.kind = archived_tasks.kind and b.state = archived_tasks.state
     order by b.id desc
     limit 1), 0);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.archived_tasks(text, taskledger.task_state) is
  'Returns how many tasks of a kind and state were archived.';
