-- The state of a reader in addition to its place: its tables, the event that stops it, and its rebuild.
-- Owner: package internal/rebuild.
--
--   subscriber_state  written and read by internal/rebuild

-- +goose Up

-- A row of the built-in projection, and of each subscriber with tables or that parks events. Rows are rarely updated:
-- when a subscriber is registered, fails, or is rebuilt.
create table taskledger.subscriber_state (
  reader          text collate "C" primary key,  -- as in cursor
  version         integer not null,      -- of the tables; 0: none, or a rebase has made them invalid
  shape           text not null,         -- digest of the DDL
  tables          text[] not null,       -- without their schema
  parks           boolean not null,      -- an event that fails is parked; else it stops the subscriber
  since           timestamptz not null default clock_timestamp(),  -- when the tables came into use
  failed_position bigint,                -- of the event that stops the subscriber; null: none
  failed_kind     text collate "C",
  failed_biz_id   text collate "C",
  failed_version  integer,
  failures        integer not null default 0,  -- in a row, of that event
  failing_since   timestamptz,
  failed_at       timestamptz,
  failure         text,
  wanted          text,                  -- an operator's request: rebuild or verify; null: none
  work            text,                  -- the current or the last work: rebuild or verify
  work_at         timestamptz,           -- of its last progress
  work_done       bigint,                -- events
  work_total      bigint,
  work_result     json);                 -- its report or error; null: it has not ended

comment on table taskledger.subscriber_state is
  'The state of a subscriber, or of the built-in projection (projector), in addition to its place: its tables, the '
  'event that stops it, and its rebuild or verification.';

insert into taskledger.subscriber_state (reader, version, shape, tables, parks) values
  ('projector', 1, '', '{task,task_count,kind_stats,kind_hour,illegal_event,task_tag}', true);

-- An operator changes rows by functions, which check that the act is on record. Index: event_xid_position.
-- +goose StatementBegin
create function taskledger_internal.check_recorded(action text, subscriber text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not exists (
       select from taskledger.event e
        where e.xid = pg_current_xact_id_if_assigned() and age(e.xmin) <= 0
          and e.position > (select f.foreign_until from taskledger_internal.floors f)
          and e.kind = 'taskledger.operation' and e.version = 1
          and e.data->>'action' = check_recorded.action
          and e.data->'detail'->>'subscriber' = check_recorded.subscriber) then
    raise exception 'taskledger: this transaction has no record of % of %', action, subscriber
      using errcode = 'insufficient_privilege',
            hint = 'Run: taskledger rebuild tables NAME, or retry parked or discard parked with --subscriber';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_recorded(text, text) is
  'Raises an error unless the calling transaction has recorded an act about a subscriber.';

-- Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.failing_event(reader text)
returns table ("position" bigint, kind text, biz_id text, version integer, error text, failures integer)
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  select p.failed_position, p.failed_kind, p.failed_biz_id, p.failed_version, p.failure, p.failures
    from taskledger.subscriber_state p
   where p.reader = failing_event.reader and p.failures > 0;
end;
-- +goose StatementEnd

comment on function taskledger_internal.failing_event(text) is
  'Returns the event that stops a subscriber; no row: none does.';

-- Runs with its owner's rights: a subscriber's role may not read the table. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.has_tables(reader text) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
  select exists (
    select from taskledger.subscriber_state p where p.reader = has_tables.reader and p.tables <> '{}');
end;
-- +goose StatementEnd

comment on function taskledger_internal.has_tables(text) is
  'Reports whether a reader of the feed has registered tables.';

-- Locks the row. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.remove_subscriber_state(reader text) returns void
language sql volatile set search_path = pg_catalog, pg_temp
begin atomic
  delete from taskledger.subscriber_state p where p.reader = remove_subscriber_state.reader;
end;
-- +goose StatementEnd

comment on function taskledger_internal.remove_subscriber_state(text) is
  'Removes a subscriber from the registry. Its tables stay.';

-- An error of a handler can contain the texts of the event. Index: none; the table contains few rows.
-- +goose StatementBegin
create function taskledger_internal.erase_stopping(kinds text[], biz_ids text[]) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
  update taskledger.subscriber_state p
     set failure = 'erased'
    from unnest(erase_stopping.kinds, erase_stopping.biz_ids) k(kind, biz_id)
   where p.failed_kind = k.kind and p.failed_biz_id = k.biz_id;
end;
-- +goose StatementEnd

comment on function taskledger_internal.erase_stopping(text[], text[]) is
  'Replaces the errors of subscribers that events of erased tasks stop.';

-- Locks the row. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.ask_subscriber(subscriber text, work text) returns setof integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if work = 'rebuild' then
    perform taskledger_internal.check_recorded('subscriber.rebuild', subscriber);
  elsif work <> 'verify' then
    raise exception 'taskledger: work must be rebuild or verify, got %', work using errcode = 'invalid_parameter_value';
  end if;
  return query
  update taskledger.subscriber_state p
     set wanted = ask_subscriber.work
   where p.reader = 'subscriber/' || ask_subscriber.subscriber
  returning p.version;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.ask_subscriber(text, text) is
  'Asks the program of a subscriber for a rebuild or a verification, and returns the version of the '
  'tables; no row if the subscriber is not registered.';

revoke all on all tables in schema taskledger, taskledger_internal from public;
revoke all on all functions in schema taskledger, taskledger_internal from public;
