-- Leases: which processes are alive.
-- Owner: shared. outbox writes the row relay; workers writes one row for each worker process and for each
-- member of a division of shards. Both read their own rows; workers and the reconciler read all.

-- +goose Up

create table taskledger.lease (
  name        text collate "C" primary key,
  holder      text not null,
  since       timestamptz not null default clock_timestamp(),
  alive_until timestamptz not null,
  detail      json)
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

comment on table taskledger.lease is
  'One row for each role (relay) and each worker process, valid until alive_until. '
  'A lease saves double work; correctness never depends on it.';
