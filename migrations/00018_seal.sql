-- The seal: a Merkle tree over the events, whose checkpoints are kept outside of the database.
-- Owner: package internal/seal.
--
--   seal       written and read by seal; rows whose tiles are in the archive are removed by cut_seal
--   seal_cut   written by cut_seal, read by seal
--   seal_rest  written by cut_seal, erasure and remove_tasks, read by seal
--
-- Other packages call seal's functions in Go. The format of the tree is in the comment of that package.

-- +goose Up

-- A row for each batch of sealed events. A batch holds events above all that were sealed before it, or only late ones:
-- of transactions that committed after events with higher positions were sealed. So the batch of an event is found by
-- one look at the index of the others, and one at the index of late batches, which are few.
-- Hashes cannot be compressed, and are read in parts.
create table taskledger.seal (
  batch      bigint primary key,
  first_leaf bigint not null unique,  -- the number of leaves before this batch
  first_node bigint not null,         -- the number of nodes before this batch
  top        bigint not null,         -- the highest position in this batch and the earlier ones
  is_late    boolean not null,
  positions  bigint[] not null,       -- of the events, in the order of the leaves
  leaves     bytea not null,          -- the hash of each leaf
  nodes      bytea not null,          -- the hash of each node of level 5 and above that this batch completes
  salts      bytea[] not null,        -- for each event 16 bytes of salt, or after erasure the digest of 32 bytes
  sealed_at  timestamptz not null default clock_timestamp(),
  constraint seal_lengths check (
    cardinality(positions) > 0 and octet_length(leaves) = 32 * cardinality(positions)
    and octet_length(nodes) % 32 = 0 and cardinality(salts) = cardinality(positions)));

alter table taskledger.seal
  alter column leaves set storage external,
  alter column nodes set storage external;

comment on table taskledger.seal is
  'The sealed events: leaves of a Merkle tree, batch by batch. Append-only, except that erasure replaces salts, and '
  'that the archive removes rows whose tiles it contains.';

-- One row: a later cut replaces it.
create table taskledger.seal_cut (
  batch         bigint primary key,  -- the last removed row of seal
  leaves        bigint not null,     -- up to its end
  top           bigint not null,     -- the highest position in the removed rows
  positions_xor bigint not null,     -- the exclusive or of the positions in the removed rows
  edge          bytea not null,      -- the partial tiles of the tree of these leaves, from level 0
  place         text not null,       -- the archive with the full tiles
  xid           xid8 not null default pg_current_xact_id());

alter table taskledger.seal_cut alter column edge set storage external;

comment on table taskledger.seal_cut is
  'Internal: which rows of seal were removed, where the tiles of their tree are, and its partial tiles.';

create table taskledger.seal_rest (
  position bigint primary key,
  leaf     bigint not null unique,
  salt     bytea not null);

comment on table taskledger.seal_rest is
  'Internal: leaf and salt of the events that are in the table event, and whose rows of seal were removed.';

create unique index seal_top on taskledger.seal (top) where not is_late;
create index seal_late on taskledger.seal using gin (positions) with (fastupdate = off) where is_late;

-- Only a transaction that has added a cut may delete, which cut_seal does.
-- +goose StatementBegin
create function taskledger_internal.refuse_seal_change() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op = 'DELETE' and exists (
       select from taskledger.seal_cut c where c.xid = pg_current_xact_id_if_assigned() and age(c.xmin) <= 0) then
    return null;
  end if;
  raise exception 'taskledger.% is append-only: % refused', tg_table_name, tg_op
    using errcode = 'restrict_violation', hint = 'the archive alone removes rows, once it contains their tiles';
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.refuse_seal_change() is
  'The trigger that keeps the seal unchanged: the archive alone removes rows.';

create trigger seal_append_only
  before delete or truncate or update of batch, first_leaf, first_node, top, is_late, positions, leaves, nodes,
                                         sealed_at
  on taskledger.seal
  for each statement execute function taskledger_internal.refuse_seal_change();

insert into taskledger.mutex (name) values ('seal');

-- Locks a row until the transaction ends. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.lock_seal() returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform from taskledger.mutex m where m.name = 'seal' for update;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.lock_seal() is
  'Locks the seal against other transactions that seal or erase, until the transaction ends.';

-- plpgsql and these settings, as feed_page: each session plans it once, whatever the statistics are.
-- Indexes: seal_top, seal_late, primary key of seal_rest.
-- +goose StatementBegin
create function taskledger_internal.sealed_leaf("position" bigint)
returns table (batch bigint, place integer, leaf bigint)
language plpgsql stable rows 1
set search_path = pg_catalog, pg_temp set enable_seqscan = off set plan_cache_mode = force_generic_plan
set jit = off as $$
begin
  return query
  select s.batch, s.place, s.first_leaf + s.place - 1
    from (
     select a.batch, a.first_leaf, array_position(a.positions, sealed_leaf.position) as place
       from ((select b.batch, b.first_leaf, b.positions
                from taskledger.seal b
               where not b.is_late and b.top >= sealed_leaf.position
               order by b.top
               limit 1)
              union all
             (select l.batch, l.first_leaf, l.positions
                from taskledger.seal l
               where l.is_late and l.positions @> array[sealed_leaf.position]
               limit 1)) a) s
   where s.place is not null
   union all
  select null, null, r.leaf from taskledger.seal_rest r where r.position = sealed_leaf.position;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.sealed_leaf(bigint) is
  'Returns the batch of the event at a position, its place there from 1, and its leaf from 0; null, null and the '
  'leaf for an event of seal_rest; no row if the event is not sealed.';

-- An owner can insert a row while an index is switched off: a verification that reads by the index misses it. Null in
-- xid counts as seen. The settings keep the planner from indexes and from compiling.
-- +goose StatementBegin
create function taskledger_internal.count_rows(snapshot text)
returns table (seen bigint, unplaced bigint, future bigint)
language plpgsql stable rows 1
set search_path = pg_catalog, pg_temp set enable_indexscan = off set enable_indexonlyscan = off
set enable_bitmapscan = off set jit = off as $$
declare
  floor constant bigint := taskledger_internal.feed_floor();
begin
  return query
  select count(*) filter (where num_nulls(e.position) = 0
                            and coalesce(e.position <= floor or pg_visible_in_snapshot(e.xid, snapshot::pg_snapshot),
                                         true)),
         count(*) filter (where num_nulls(e.position) = 1),
         count(*) filter (where e.position > floor and e.xid >= pg_snapshot_xmax(pg_current_snapshot()))
    from taskledger.event e;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.count_rows(text) is
  'Counts the events in the table without its indexes: those with a position that a snapshot sees, those without a '
  'position, and those of transactions that have not begun.';

-- The digest of the personal data of an event, as in package internal/seal.
-- +goose StatementBegin
create function taskledger_internal.personal_digest(salt bytea, data text, meta text, actor text) returns bytea
language sql immutable parallel safe
return sha256(convert_to(E'taskledger personal data v1\n', 'UTF8') || salt || convert_to(
  'data ' || coalesce(octet_length(data) || ' ' || data, '-') || E'\n'
  'meta ' || coalesce(octet_length(meta) || ' ' || meta, '-') || E'\n'
  'actor ' || coalesce(octet_length(actor) || ' ' || actor, '-') || E'\n', 'UTF8'));
-- +goose StatementEnd

comment on function taskledger_internal.personal_digest(bytea, text, text, text) is
  'Returns the digest of the personal data of an event, which its leaf covers.';

-- The transaction that removes data, meta and actor from the events calls this before. An erasure keeps the events that
-- give a task its turn in its line: see is_turn in 00025_erasure.sql. The lock keeps a sealer from
-- sealing the text that it read before the erasure. Rows of the seal change in salts alone, so that the leaves stay.
-- Indexes: primary key of event, seal_top, seal_late, primary key of seal.
-- +goose StatementBegin
create function taskledger.erase_salts(kind text, biz_id text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  sealed record;
  erased bigint := 0;
begin
  -- An older snapshot lacks the batch that a sealer commits meanwhile, and its salts would stay.
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception 'taskledger: erase_salts needs a READ COMMITTED transaction' using
      errcode = 'active_sql_transaction', hint = 'begin isolation level read committed';
  end if;
  perform taskledger_internal.lock_seal();
  for sealed in
    select l.batch, l.place, e.position, e.data::text as data, e.meta::text as meta, e.actor
      from taskledger.event e
     cross join lateral taskledger_internal.sealed_leaf(e.position) l
     where e.kind = erase_salts.kind and e.biz_id = erase_salts.biz_id
       and not (e.type = 'released' and coalesce(starts_with(e.data::text, '{"reason":"turn"'), false))
     order by l.batch
  loop
    update taskledger.seal s
       set salts[sealed.place] =
             taskledger_internal.personal_digest(s.salts[sealed.place], sealed.data, sealed.meta, sealed.actor)
     where s.batch = sealed.batch and octet_length(s.salts[sealed.place]) = 16;
    if not found then
      update taskledger.seal_rest r
         set salt = taskledger_internal.personal_digest(r.salt, sealed.data, sealed.meta, sealed.actor)
       where sealed.batch is null and r.position = sealed.position and octet_length(r.salt) = 16;
    end if;
    if found then
      erased := erased + 1;
    end if;
  end loop;
  return erased;
end
$$;
-- +goose StatementEnd

comment on function taskledger.erase_salts(text, text) is
  'Replaces the salts of a task''s sealed events with digests. Call it in the transaction that erases data, meta '
  'and actor: the seal stays valid, and no guess of the text can be confirmed. Returns the number of events.';

-- The events of archived tasks are in files, so their digests come from there. Indexes: as sealed_leaf.
-- +goose StatementBegin
create function taskledger_internal.erase_salts_at(positions bigint[], digests text[]) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  sealed record;
  erased bigint := 0;
begin
  perform taskledger_internal.lock_seal();
  for sealed in
    select l.batch, l.place, decode(d.digest, 'hex') as digest
      from unnest(erase_salts_at.positions, erase_salts_at.digests) d(position, digest)
     cross join lateral taskledger_internal.sealed_leaf(d.position) l
     where d.position <= taskledger_internal.archived_until() and octet_length(d.digest) = 64
       and not exists (select from taskledger.event e where e.position = d.position)
     order by l.batch
  loop
    update taskledger.seal s
       set salts[sealed.place] = sealed.digest
     where s.batch = sealed.batch and octet_length(s.salts[sealed.place]) = 16;
    if found then
      erased := erased + 1;
    end if;
  end loop;
  return erased;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.erase_salts_at(bigint[], text[]) is
  'Replaces the salts of archived events with digests, in hexadecimal. Returns the number of salts.';

-- Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.forget_leaves(positions bigint[]) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
begin
  delete from taskledger.seal_rest r using unnest(positions) p(position) where r.position = p.position;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.forget_leaves(bigint[]) is
  'Removes leaf and salt of archived events, if their rows of seal were removed before.';

-- Removes the first rows of the seal, whose tiles an archive contains. The last row stays: the seal continues from it.
-- The locks keep events from being removed and batches from being appended meanwhile. Runs with its owner's rights.
-- Indexes: primary key of seal, (position) of event.
-- +goose StatementBegin
create function taskledger_internal.cut_seal(last_batch bigint, leaves bigint, edge text, place text, actor text,
                                             reason text) returns bigint
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  before record;
  last record;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'taskledger: cut_seal needs a READ COMMITTED transaction'
      using errcode = 'active_sql_transaction', hint = 'begin isolation level read committed';
  end if;
  perform taskledger_internal.lock_archive();
  perform taskledger_internal.lock_seal();
  select c.batch, c.leaves, c.positions_xor into before from taskledger.seal_cut c order by c.batch desc limit 1;
  select s.batch, s.top, s.first_leaf + cardinality(s.positions) as leaves into last
    from taskledger.seal s
   where s.batch = cut_seal.last_batch;
  if last.leaves is distinct from cut_seal.leaves
     or not exists (select from taskledger.seal s where s.batch > cut_seal.last_batch) then
    return 0;
  end if;
  insert into taskledger.seal_rest (position, leaf, salt)
  select p.position, s.first_leaf + p.place - 1, p.salt
    from taskledger.seal s
   cross join lateral unnest(s.positions, s.salts) with ordinality p(position, salt, place)
   where s.batch <= cut_seal.last_batch
     and exists (select from taskledger.event e where e.position = p.position);
  insert into taskledger.seal_cut (batch, leaves, top, positions_xor, edge, place)
  select last.batch, last.leaves, last.top, bit_xor(p.position) # coalesce(before.positions_xor, 0),
         decode(cut_seal.edge, 'hex'), cut_seal.place
    from taskledger.seal s
   cross join lateral unnest(s.positions) p(position)
   where s.batch <= cut_seal.last_batch;
  delete from taskledger.seal s where s.batch <= cut_seal.last_batch;
  delete from taskledger.seal_cut c where c.batch < cut_seal.last_batch;
  perform taskledger_internal.record_act('archive.seal', cut_seal.actor, cut_seal.reason, json_build_object(
    'leaves', (last.leaves - coalesce(before.leaves, 0))::text, 'until', last.leaves::text,
    'file', cut_seal.place));
  return last.leaves - coalesce(before.leaves, 0);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.cut_seal(bigint, bigint, text, text, text, text) is
  'Removes the rows of seal up to a batch, with which this many leaves end, and records it with an actor and a reason. '
  'The archive at a place contains the full tiles of their tree; edge is its partial tiles. Returns how many leaves '
  'they had; 0 if another run has removed them.';

revoke all on all tables in schema taskledger, taskledger_internal from public;
revoke all on all functions in schema taskledger, taskledger_internal from public;
