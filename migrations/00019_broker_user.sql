-- The users of the NATS server that serve runs.
-- Owner: package internal/natsclient.
--
--   broker_user  added by serve, and read by each program that connects
--
-- No other package names it.

-- +goose Up

create table taskledger.broker_user (
  name     text collate "C" primary key check (name ~ '^[A-Za-z0-9_-]{1,64}$'),
  password text not null check (octet_length(password) between 20 and 100));

comment on table taskledger.broker_user is
  'The users of the NATS server that serve runs, with their passwords. A role reads the row of its own user alone.';

-- The policies of roles.sql name the users of each role.
alter table taskledger.broker_user enable row level security;

revoke all on all tables in schema taskledger, taskledger_internal from public;
