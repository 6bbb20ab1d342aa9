-- The workers' division of shards.
-- Owner: package workers.
--
--   shard_owner  written and read by workers

-- +goose Up

-- A row counts while its worker lives, by the lease shards/<worker>; so it is written only when the group
-- changes its owner. Correctness never depends on it: the head of a task decides which worker runs it.
create table taskledger.shard_owner (
  kind   text collate "C" not null,
  shards text collate "C" not null,  -- as ledger.ShardSet writes them: 0-15
  worker text not null,
  since  timestamptz not null default clock_timestamp(),
  primary key (kind, shards))
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

comment on table taskledger.shard_owner is
  'Which worker has which group of shards of a kind, where workers divide the shards among themselves.';
