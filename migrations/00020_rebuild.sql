-- The registry of the tables that are derived from the events, and of their rebuilds.
-- Owner: package internal/rebuild.
--
--   projection  written and read by internal/rebuild

-- +goose Up

-- Rows are rarely updated: when a projection is registered, fails, or is rebuilt.
create table taskledger.projection (
  name            text collate "C" primary key,
  version         integer not null,      -- of the tables; 0: a rebase has made them invalid
  shape           text not null,         -- digest of the DDL
  tables          text[] not null,       -- in the schema of the projection's name
  parks           boolean not null,      -- an event that fails is parked; else it stops the projection
  since           timestamptz not null default clock_timestamp(),  -- when the tables came into use
  failed_position bigint,                -- of the event that stops the projection; null: none
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

comment on table taskledger.projection is
  'The projections: their tables, the event that stops one, and its rebuild or verification.';

insert into taskledger.projection (name, version, shape, tables, parks) values
  ('tasks', 1, '', '{task,task_count,kind_stats,illegal_event,task_tag}', true);

-- An operator changes rows by functions, which check that the act is on record. Index: event_xid_position.
-- +goose StatementBegin
create function taskledger_internal.check_recorded(action text, projection text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not exists (
       select from taskledger.event e
        where e.xid = pg_current_xact_id_if_assigned() and age(e.xmin) <= 0
          and e.position > (select f.foreign_until from taskledger.floors f)
          and e.kind = 'taskledger.operation' and e.version = 1
          and e.data->>'action' = check_recorded.action
          and e.data->'detail'->>'projection' = check_recorded.projection) then
    raise exception 'taskledger: this transaction has no record of % of %', action, projection
      using errcode = 'insufficient_privilege',
            hint = 'Run: taskledger ' || replace(action, '.', ' ') || ' ' || projection;
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_recorded(text, text) is
  'Raises an error unless the calling transaction has recorded an act about a projection.';

-- Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.failing_event(projection text)
returns table ("position" bigint, kind text, biz_id text, version integer, error text, failures integer)
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  select p.failed_position, p.failed_kind, p.failed_biz_id, p.failed_version, p.failure, p.failures
    from taskledger.projection p
   where p.name = failing_event.projection and p.failures > 0;
end;
-- +goose StatementEnd

comment on function taskledger_internal.failing_event(text) is
  'Returns the event that stops a projection; no row: none does.';

-- Locks the row. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.ask_projection(projection text, work text) returns setof integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if work = 'rebuild' then
    perform taskledger_internal.check_recorded('projection.rebuild', projection);
  elsif work <> 'verify' then
    raise exception 'taskledger: work must be rebuild or verify, got %', work using errcode = 'invalid_parameter_value';
  end if;
  return query
  update taskledger.projection p
     set wanted = ask_projection.work
   where p.name = ask_projection.projection
  returning p.version;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.ask_projection(text, text) is
  'Asks the program that runs a projection for a rebuild or a verification, and returns the version of the '
  'tables; no row if the projection is not registered.';

revoke all on all tables in schema taskledger from public;
revoke all on all functions in schema taskledger, taskledger_internal from public;
