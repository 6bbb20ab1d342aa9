-- Who works on which shards, where workers divide them among themselves.

-- +goose Up

-- One row for each group of shards of a kind that somebody has. It counts as long as the worker
-- lives, by its lease shards/<worker>; so a row is written when its group changes hands and at no
-- other time. Nothing that must be correct rests on it: heads decide who runs a task.
create table taskledger.shard_owner (
  kind   text collate "C" not null,
  shards text collate "C" not null,  -- as ledger.ShardSet writes them: 0-15
  worker text not null,
  since  timestamptz not null default clock_timestamp(),
  primary key (kind, shards))
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);
