-- The ledger: the events, their vocabulary and the settings.
-- Owner: package ledger.
--
--   event    written by ledger; read by every package and every program: it is the published interface
--   setting  written here, and by operators in SQL; read by ledger
--
-- Other packages call the function installation.

-- +goose Up

-- +goose StatementBegin
do $$
begin
  if current_setting('server_encoding') <> 'UTF8' then
    raise exception 'taskledger needs a database with encoding UTF8, this one has %', current_setting('server_encoding')
      using hint = 'create the database with: create database <name> encoding ''UTF8'' template template0';
  end if;
end
$$;
-- +goose StatementEnd

comment on schema taskledger is
  'Tasks as an append-only log of events. Start with the function enqueue and the table event.';

create type taskledger.event_type as enum (
  'enqueued', 'scheduled', 'released', 'started', 'progressed', 'succeeded', 'failed',
  'interrupted', 'snoozed', 'buried', 'cancelled', 'expired', 'discarded');

comment on type taskledger.event_type is
  'What happened to a task. taskledger.state_after gives the state that follows.';

create type taskledger.task_state as enum (
  'available', 'scheduled', 'running', 'retrying', 'succeeded', 'dead', 'cancelled', 'expired', 'discarded');

comment on type taskledger.task_state is 'The state of a task, which is that after its last event.';

-- Enqueue reads the two limits only for a payload over 4 KiB: a smaller limit would have no effect.
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
create function taskledger.installation() returns text
language sql stable parallel safe
begin atomic
  select s.value from taskledger.setting s where s.name = 'installation';
end;
-- +goose StatementEnd

comment on function taskledger.installation() is
  'Returns the id of this ledger, which its stream and its CloudEvents carry.';

-- xid must stand before position: PostgreSQL computes defaults in the order of the columns, and the
-- feed relies on the transaction id being older than the position.
create table taskledger.event (
  xid         xid8 not null default pg_current_xact_id(),
  position    bigint generated always as identity,
  version     integer not null,
  attempt     integer not null,
  shard       smallint not null,
  type        taskledger.event_type not null,
  recorded_at timestamptz not null default clock_timestamp(),
  kind        text collate "C" not null,
  biz_id      text collate "C" not null,
  actor       text,
  data        json,
  meta        json,
  primary key (kind, biz_id, version),
  unique (position));

comment on table taskledger.event is
  'The ledger: one row for each event of a task (kind, biz_id), numbered by version. '
  'Rows are appended, never changed or deleted.';

create index event_xid_position on taskledger.event (xid, position);

-- +goose StatementBegin
create function taskledger.refuse_change() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'taskledger.event is append-only: % refused', tg_op
    using errcode = 'restrict_violation',
          hint = 'correct a fact by appending another event; history is removed only by archiving';
end
$$;
-- +goose StatementEnd

comment on function taskledger.refuse_change() is 'Internal: the trigger that keeps the table event append-only.';

create trigger event_append_only
  before update or delete or truncate on taskledger.event
  for each statement execute function taskledger.refuse_change();

-- The same table as ledger.Transitions in Go.
-- +goose StatementBegin
create function taskledger.state_after(type taskledger.event_type) returns taskledger.task_state
language sql immutable parallel safe
return case type
  when 'enqueued'    then 'available'::taskledger.task_state
  when 'scheduled'   then 'scheduled'
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
