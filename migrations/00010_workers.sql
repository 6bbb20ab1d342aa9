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
  primary key (kind, shards),
  check (since between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'))
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

comment on table taskledger.shard_owner is
  'Which worker has which group of shards of a kind, where workers divide the shards among themselves.';

create view taskledger.worker_shards as
select o.worker, o.kind, o.shards
  from taskledger.shard_owner o
 where exists (select from taskledger.shards_alive(o.worker));

comment on view taskledger.worker_shards is
  'The groups of shards that each live worker has, of the kinds that divide them.';

-- With its owner's rights: a role with the privilege DELETE may lock the whole table. Index: primary key; to give up
-- all shards the small table is read.
-- +goose StatementBegin
create function taskledger.leave_shards(worker text, kind text, shards text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  delete from taskledger.shard_owner o
   where o.worker = leave_shards.worker
     and (leave_shards.shards = '' or o.kind = leave_shards.kind and o.shards = leave_shards.shards)
     and not taskledger.is_anothers_member(leave_shards.worker);
end
$$;
-- +goose StatementEnd

comment on function taskledger.leave_shards(text, text, text) is
  'Internal: gives up shards of a worker, all of all kinds if shards is empty; none if a worker of another login is '
  'alive by that id.';
