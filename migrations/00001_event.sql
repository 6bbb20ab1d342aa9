-- The ledger itself: one append-only table, its vocabulary, its limits.

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

create type taskledger.event_type as enum (
  'enqueued', 'scheduled', 'released', 'started', 'progressed', 'succeeded', 'failed',
  'interrupted', 'snoozed', 'buried', 'cancelled', 'expired', 'discarded');

create type taskledger.task_state as enum (
  'available', 'scheduled', 'running', 'retrying', 'succeeded', 'dead', 'cancelled', 'expired', 'discarded');

-- Small facts that every writer shares, in whatever language it is written.
create table taskledger.setting (
  name  text collate "C" primary key,
  value text not null);

insert into taskledger.setting (name, value) values
  ('installation', gen_random_uuid()::text),  -- whose events these are: CloudEvents source, stream metadata
  ('max_args_bytes', '262144'),
  ('max_meta_bytes', '16384');

-- xid stands before position on purpose: defaults are computed in column order,
-- and the feed relies on the transaction id being older than the position.
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

create trigger event_append_only
  before update or delete or truncate on taskledger.event
  for each statement execute function taskledger.refuse_change();

-- The state a task is in is a function of its last event's type (ledger.Transitions in Go).
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

-- The shard of a task whose producer named none: the first 32 bits of md5(biz_id) mod 64.
-- +goose StatementBegin
create function taskledger.shard_of(biz_id text) returns smallint
language sql immutable strict parallel safe
return ((('x' || substr(md5(biz_id), 1, 8))::bit(32)::bigint & 4294967295) % 64)::smallint;
-- +goose StatementEnd
