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
  reason text not null);

comment on table taskledger.pause is 'The kinds that an operator has paused: no worker starts their tasks.';

create view taskledger.paused_kinds as
select p.kind, p.since, p.actor, p.reason from taskledger.pause p;

comment on view taskledger.paused_kinds is 'The kinds of which no worker starts tasks, since when, by whom and why.';
