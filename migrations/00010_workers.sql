-- The workers' division of shards.
-- Owner: package workers/internal/shards.
--
--   shard_owner  written and read by shards
--
-- Package workers reads the view worker_shards.

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

create view taskledger.worker_shards as
select o.worker, o.kind, o.shards
  from taskledger.shard_owner o
 where exists (select from taskledger.shards_alive(o.worker));

comment on view taskledger.worker_shards is
  'The groups of shards that each live worker has, of the kinds that divide them.';
