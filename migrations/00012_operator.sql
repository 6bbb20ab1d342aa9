-- Operators: the kinds that are paused.
-- Owner: package workers/operator.
--
--   pause  written and read by operator
--
-- Workers read the view paused_kinds.

-- +goose Up

create table taskledger.pause (
  kind   text collate "C" primary key,
  since  timestamptz not null default clock_timestamp(),
  actor  text not null,
  reason text not null,
  check (since between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'));

comment on table taskledger.pause is 'The kinds that an operator has paused: no worker starts their tasks.';

create view taskledger.paused_kinds as
select p.kind, p.since, p.actor, p.reason from taskledger.pause p;

comment on view taskledger.paused_kinds is 'The kinds of which no worker starts tasks, since when, by whom and why.';

-- With its owner's rights: a role with the privilege DELETE may lock the whole table. Index: primary key.
-- +goose StatementBegin
create function taskledger.remove_pause(kind text) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  delete from taskledger.pause p where p.kind = remove_pause.kind returning p.kind;
end
$$;
-- +goose StatementEnd

comment on function taskledger.remove_pause(text) is
  'Internal: ends the pause of a kind, and returns the kind if it was paused.';
