-- The archive: finished tasks leave the tables, and their keys stay known.
-- Owner: package ledger.
--
--   archived_key    written by remove_tasks, read by ledger
--   archive_batch   written by remove_tasks, read by ledger
--   archive_gap     written by remove_tasks, read by the view archive_gaps
--   archive_setting written by set_archive, read by the view archive_settings
--   key_life        written by set_key_life, read by the view key_lives
--   mortal_key      written by remove_tasks and forget_keys
--   archive_run     written and read by begin_archive, archive_waits and remove_tasks
--   archived_until  raised by begin_archive; appends compare it
--
-- Package internal/archiver calls begin_archive, archive_waits, archivable and remove_tasks. Others call
-- archived_version, still_has, still_ends, archived_until, archived_keys, runs_archived and discard_archived.
--
-- A task is removed as a whole, in the transaction that adds its key to archived_key. So each snapshot sees the
-- events, or the key. A read from before the removal must not lead to an append after it:
--
--   - A statement that looks for the task's last event in its own snapshot sees the end of the task, or no event. A
--     snapshot from before the end would see an older event. So a run of the archive first waits for the transactions
--     that are open when it begins, and removes only tasks whose end all later snapshots see.
--   - A statement of a worker that has read the last event earlier (append_many_read.sql, append_required_read.sql)
--     compares the position of that event with archived_until. It lies above all events of the tasks that a run
--     removes, and is raised before the run waits. It is a sequence, so each statement reads its present value.
--   - An event that follows a finished one (a release, a further run) locks that event first: still_ends.
--   - Version 1 of a key that is enqueued again is not the archived version 1. No event may follow it but the
--     discarded of discard_archived, which has the version after the archived ones. An enqueue that runs the task
--     again appends that event itself, and the next run behind it.

-- +goose Up

-- Which positions may be missing: no event of a removed task is above it.
create sequence taskledger.archived_until;

comment on sequence taskledger.archived_until is
  'Internal: a position that is above no event of a removed task; never called: no task was removed.';

-- The planner inlines this expression.
create function taskledger_internal.archived_until() returns bigint
language sql volatile
return coalesce(pg_sequence_last_value('taskledger.archived_until'::regclass), 0);

comment on function taskledger_internal.archived_until() is
  'Returns a position that no event of a removed task is above; 0: no task was removed.';

-- A run removes tasks that ended before cutoff. seen: a snapshot that sees their ends.
create table taskledger.archive_run (
  id        integer generated always as identity primary key,
  cutoff    timestamptz not null,
  top       bigint not null,          -- no event of a task that it removes has a higher position
  seen      pg_snapshot not null,
  waits_for text[] not null,          -- virtual ids of the transactions that were open at its beginning
  begun_at  timestamptz not null default clock_timestamp(),
  ended_at  timestamptz,              -- null: it runs, was killed, or has failed
  scope     text collate "C" not null default '',  -- the kinds that were named, as an array literal; '': all others
  tasks     bigint,                   -- that it has removed
  place     text,                     -- the archive of its files; null: none
  held      bigint,                   -- tasks that readers of the feed hold
  held_by   text,                     -- one of these readers
  held_since timestamptz);            -- the earliest end of these tasks

comment on table taskledger.archive_run is
  'Internal: the runs of the archive, and the transactions that each waits for.';

create table taskledger.archive_batch (
  id            integer generated always as identity primary key,
  run           integer not null,
  tasks         integer not null,
  total         bigint not null,      -- the tasks of this kind and state in all batches up to this one
  events        bigint not null,
  positions_xor bigint not null,      -- the exclusive or of the positions of the events
  is_sealed     boolean not null,     -- a sealer had read the events
  archived_at   timestamptz not null default clock_timestamp(),
  first_position bigint not null,
  last_position bigint not null,
  last_xid      xid8 not null,        -- of its events
  xid           xid8 not null default pg_current_xact_id(),
  kind          text collate "C" not null,
  state         taskledger.task_state not null,
  file          text);                -- null: the events are in no file

comment on table taskledger.archive_batch is
  'The tasks of a kind and state that one transaction has removed. Append-only.';

-- One row for each batch and each reader that had not read all of its events.
create table taskledger.archive_gap (
  reader         text collate "C" not null,
  run            integer not null,
  events         bigint not null,
  first_position bigint not null,
  last_position  bigint not null,
  archived_at    timestamptz not null default clock_timestamp());

create index archive_gap_reader on taskledger.archive_gap (reader, first_position);

comment on table taskledger.archive_gap is
  'The events that readers of the feed have missed because the archive has removed them. Append-only.';

create view taskledger.archive_gaps as
select g.reader, g.run, g.events, g.first_position, g.last_position, g.archived_at from taskledger.archive_gap g;

comment on view taskledger.archive_gaps is
  'The events that readers of the feed have missed because the archive has removed them: a row for each batch, with '
  'their number, and the first and the last position among them.';

create index archive_batch_xid on taskledger.archive_batch (xid);
create index archive_batch_last_xid on taskledger.archive_batch (last_xid);
create index archive_batch_total on taskledger.archive_batch (kind, state, id);

-- Up to the floor, each snapshot but the first sees an event: see the table floor. With its owner's rights: no reader
-- of the feed reads the table. Index: archive_batch_last_xid, or the whole table for a reader at the beginning.
-- +goose StatementBegin
create function taskledger_internal.archived_beyond(seen pg_snapshot, kinds text[])
returns table (file text, events bigint, first_position bigint, last_position bigint)
language plpgsql stable security definer rows 100 set search_path = pg_catalog, pg_temp as $$
declare
  floor constant bigint := taskledger_internal.feed_floor();
begin
  if pg_sequence_last_value('taskledger.archived_until'::regclass) is null then
    return;
  end if;
  return query
  select b.file, sum(b.events)::bigint, min(b.first_position), max(b.last_position)
    from taskledger.archive_batch b
   where b.last_xid >= pg_snapshot_xmin(archived_beyond.seen)
     and (b.last_position > floor or pg_snapshot_xmin(archived_beyond.seen) <= '3'::xid8)
     and (archived_beyond.kinds is null or b.kind = any (archived_beyond.kinds))
   group by b.file;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.archived_beyond(pg_snapshot, text[]) is
  'Returns the archived events of some kinds, null for all, that a snapshot may not see: their files, null for none, '
  'their number, and the first and the last position.';

-- Batches commit in the order of their ids: remove_tasks takes turns. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.last_archived() returns integer
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  if pg_sequence_last_value('taskledger.archived_until'::regclass) is null then
    return 0;
  end if;
  return (select coalesce(max(b.id), 0) from taskledger.archive_batch b);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.last_archived() is
  'Returns the id of the last batch that the archive has removed, 0 if none.';

-- A row stays for each removed task: 60 bytes, and an entry of the index. The batch has its kind and state. A key
-- is compared by 24 bytes of its SHA-256: it takes 2^96 attempts to find two keys that are taken for one. The task
-- of a second key with the same first 16 bytes runs, and stays in the tables.
create table taskledger.archived_key (
  hash    uuid not null,              -- key_hash
  rest    bigint not null,            -- key_rest
  version integer not null,           -- the last one; a duplicate that was discarded continues it
  batch   integer not null,
  primary key (hash))
  with (autovacuum_vacuum_insert_scale_factor = 0.01, autovacuum_freeze_min_age = 0);

comment on table taskledger.archived_key is
  'The keys of removed tasks, by hash: they run again only by an enqueue that runs a finished task again.';

-- Half of SHA-256. A kind contains no slash.
-- +goose StatementBegin
create function taskledger_internal.key_hash(kind text, biz_id text) returns uuid
language sql immutable strict parallel safe
return encode(substring(sha256(convert_to(kind || '/' || biz_id, 'UTF8')) for 16), 'hex')::uuid;
-- +goose StatementEnd

comment on function taskledger_internal.key_hash(text, text) is
  'Returns the hash by which archived_key stores a key: the first 16 bytes of the SHA-256 of kind/biz_id.';

-- How long the keys of archived tasks of a kind stay known, if not forever.
create table taskledger.key_life (
  kind       text collate "C" primary key,
  keep       interval not null check (keep >= interval '0'),
  actor      text not null,
  updated_at timestamptz not null default clock_timestamp());

comment on table taskledger.key_life is
  'How long the keys of archived tasks of a kind stay known, as set by operators. Keys of other kinds stay known '
  'forever.';

create view taskledger_internal.key_lives as
select l.kind, l.keep, l.actor, l.updated_at from taskledger.key_life l;

comment on view taskledger_internal.key_lives is
  'The kinds whose archived keys are forgotten, and after which time. Keys of other kinds stay known forever.';

-- The archived keys of these kinds, by batch: archived_key has no index by age.
create table taskledger.mortal_key (
  batch integer not null,
  hash  uuid not null,
  primary key (batch, hash));

comment on table taskledger.mortal_key is
  'Internal: the archived keys that were removed while their kind had a limited time in key_life.';

-- +goose StatementBegin
create function taskledger_internal.key_rest(kind text, biz_id text) returns bigint
language sql immutable strict parallel safe
return ('x' || encode(substring(sha256(convert_to(kind || '/' || biz_id, 'UTF8')) from 17 for 8), 'hex'))::bit(64)
       ::bigint;
-- +goose StatementEnd

comment on function taskledger_internal.key_rest(text, text) is
  'Returns the 8 bytes of the SHA-256 of kind/biz_id that follow key_hash.';

-- Runs with its owner's rights: each role that appends asks. Stable, so that it reads the snapshot of the calling
-- statement. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.archived_version(kind text, biz_id text) returns integer
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  if pg_sequence_last_value('taskledger.archived_until'::regclass) is null then
    return null;
  end if;
  return (
    select a.version
      from taskledger.archived_key a
     where a.hash = taskledger_internal.key_hash(archived_version.kind, archived_version.biz_id)
       and a.rest = taskledger_internal.key_rest(archived_version.kind, archived_version.biz_id));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.archived_version(text, text) is
  'Returns the last version of the archived task with this key; null if none was archived.';

-- A snapshot taken during a run sees a task's events until they are removed, and also the task's end: see the header.
-- Stable, and runs with its owner's rights, like archived_version. Indexes: position, primary key.
-- +goose StatementBegin
create function taskledger_internal.still_has(kind text, biz_id text, "position" bigint, last integer) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
  return exists (
    select from taskledger.event e
     where e.position = still_has.position and e.kind = still_has.kind and e.biz_id = still_has.biz_id)
    and not exists (
      select from taskledger.event n
       where n.kind = still_has.kind and n.biz_id = still_has.biz_id and n.version > still_has.last);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.still_has(text, text, bigint, integer) is
  'Returns whether the event of a task at a position is in the ledger, and none after a version: a removed task has '
  'none.';

-- Volatile, to see the removal that it has waited for. Runs with its owner's rights, because only the owner may lock
-- rows of events. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.still_ends(kind text, biz_id text, version integer,
                                               needs_args boolean default false) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform from taskledger.event e
    where e.kind = still_ends.kind and e.biz_id = still_ends.biz_id and e.version = still_ends.version
      and e.type in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded')
      for key share;
  return (found or exists (
    select from taskledger.event e
     where e.kind = still_ends.kind and e.biz_id = still_ends.biz_id and e.version = still_ends.version))
    and not (needs_args and taskledger_internal.has_erased_args(still_ends.kind, still_ends.biz_id));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.still_ends(text, text, integer, boolean) is
  'Locks the last event of a finished task against its removal until the transaction ends. Returns whether the event '
  'is in the ledger: it is not if the task was removed. With needs_args also whether the args are not erased.';

-- Runs with its owner's rights, because no role may read the table. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.archived_keys(kinds text[], biz_ids text[])
returns table (n bigint, version integer, state taskledger.task_state, archived_at timestamptz, file text,
               erased_until bigint)
language plpgsql stable security definer rows 10 set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
begin
  if pg_sequence_last_value('taskledger.archived_until'::regclass) is null then
    return;
  end if;
  return query
  select k.n, a.version, b.state, b.archived_at, b.file, taskledger_internal.erased_until(k.kind, k.biz_id)
    from unnest(archived_keys.kinds, archived_keys.biz_ids) with ordinality k(kind, biz_id, n)
   cross join lateral (
     select o.version, o.batch
       from taskledger.archived_key o
      where o.hash = taskledger_internal.key_hash(k.kind, k.biz_id)
        and o.rest = taskledger_internal.key_rest(k.kind, k.biz_id)
      limit 1) a
    join taskledger.archive_batch b on b.id = a.batch
   order by k.n;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.archived_keys(text[], text[]) is
  'Returns the archived keys among some, by their numbers from 1: the last version and state of the task, when it was '
  'removed, the file that contains it, and the position up to which its events are erased, 0 if they are not.';

-- A key that was archived and enqueued again has only events up to the archived version: version 1, or more if a
-- service was faster. The discarded event has the version after the archived one, so that the numbers of the archived
-- events are not used again. An operator who releases the task afterwards runs it again.
--
-- Runs with its owner's rights: the services read no archived key. Waits for concurrent appends to the duplicates.
-- Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.discard_archived(kinds text[], biz_ids text[], actor text)
returns table (n bigint)
language plpgsql volatile security definer rows 10 set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
  found_numbers bigint[];
begin
  if pg_sequence_last_value('taskledger.archived_until'::regclass) is null then
    return;
  end if;
  -- The answer contains tasks that another call has discarded, too, even if they run again since: their version 1 never
  -- begins.
  select array_agg(k.n) into found_numbers
    from unnest(discard_archived.kinds, discard_archived.biz_ids) with ordinality k(kind, biz_id, n)
   cross join lateral (
     select from taskledger.archived_key o
      where o.hash = taskledger_internal.key_hash(k.kind, k.biz_id)
        and o.rest = taskledger_internal.key_rest(k.kind, k.biz_id)
      limit 1) a;
  if found_numbers is null then
    return;
  end if;
  with tx as materialized (
    select pg_current_xact_id() as xid,
           coalesce((select l.id from taskledger.logins l where l.name = session_user limit 1),
                    taskledger_internal.login_id()) as login_id, taskledger_internal.wake()
  )
  insert into taskledger.event (xid, version, attempt, shard, type, login_id, priority, partition, kind, biz_id,
                                order_key, actor, data)
  select tx.xid, a.version + 1, h.attempt, h.shard, 'discarded', tx.login_id, h.priority, h.partition, k.kind,
         k.biz_id, h.order_key, coalesce(nullif(discard_archived.actor, ''), session_user),
         ('{"reason":"archived","archived_state":"' || b.state || '","archived_version":' || a.version || '}')::json
    from tx
   cross join unnest(discard_archived.kinds, discard_archived.biz_ids) with ordinality k(kind, biz_id, n)
   cross join lateral (
     select o.version, o.batch
       from taskledger.archived_key o
      where o.hash = taskledger_internal.key_hash(k.kind, k.biz_id)
        and o.rest = taskledger_internal.key_rest(k.kind, k.biz_id)
      limit 1) a
    join taskledger.archive_batch b on b.id = a.batch
   cross join lateral (
     select e.version, e.type, e.attempt, e.shard, e.priority, e.partition, e.order_key
       from taskledger.event e
      where e.kind = k.kind and e.biz_id = k.biz_id
      order by e.version desc
      limit 1) h
   where k.n = any (found_numbers) and h.version <= a.version
     and h.type in ('enqueued', 'scheduled', 'lined_up', 'released', 'snoozed', 'interrupted', 'started', 'progressed')
   order by k.kind, k.biz_id
      on conflict (kind, biz_id, version) do nothing;
  return query select unnest(found_numbers);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.discard_archived(text[], text[], text) is
  'Discards the tasks among some whose keys are archived, and returns their numbers, from 1.';

-- Called by an enqueue whose IfExists runs a finished task again, after it has inserted version 1: was the task
-- archived? Volatile, to see the removal that the insert has waited for. With an older REPEATABLE READ snapshot, the
-- insert finds no version 1 either, although its transaction still reads the removed one. Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.runs_archived(kind text, biz_id text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if pg_sequence_last_value('taskledger.archived_until'::regclass) is null then
    return false;
  end if;
  if current_setting('transaction_isolation') in ('repeatable read', 'serializable') and (
       select count(*)
         from taskledger.event e
        where e.kind = runs_archived.kind and e.biz_id = runs_archived.biz_id and e.version = 1) > 1 then
    raise exception 'taskledger: task %/% was archived during the transaction', runs_archived.kind, runs_archived.biz_id
      using errcode = 'serialization_failure', hint = 'try again';
  end if;
  return taskledger_internal.archived_version(runs_archived.kind, runs_archived.biz_id) is not null;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.runs_archived(text, text) is
  'Returns whether the task whose version 1 was inserted is an archived one, for an enqueue that is to run it again.';

-- Owners of events remove none by mistake: only a transaction that has added a batch may delete, which remove_tasks
-- does. Index: archive_batch_xid.
-- +goose StatementBegin
create function taskledger_internal.refuse_event_change() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if tg_op = 'DELETE' and exists (
       select from taskledger.archive_batch b where b.xid = pg_current_xact_id_if_assigned() and age(b.xmin) <= 0) then
    return null;
  end if;
  raise exception 'taskledger.% is append-only: % refused', tg_table_name, tg_op
    using errcode = 'restrict_violation',
          hint = 'correct a fact by appending another event: events are never changed, and the archive alone removes '
                 'them';
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.refuse_event_change() is
  'The trigger that keeps events unchanged: the archive alone removes them.';

drop trigger event_append_only on taskledger.event;
create trigger event_append_only
  before update or delete or truncate on taskledger.event
  for each statement execute function taskledger_internal.refuse_event_change();

comment on table taskledger.event is
  'The ledger: one row for each event of a task (kind, biz_id), numbered by version. '
  'Rows are appended and never changed. The archive removes finished tasks, as a whole.';

-- Finds the position up to which events are older than a time by bisection: positions almost follow the time, and an
-- error only costs time. Index: position.
-- +goose StatementBegin
create function taskledger_internal.position_before(moment timestamptz) returns bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  low bigint := coalesce((select e.position from taskledger.event e order by e.position limit 1), 1) - 1;
  high bigint := coalesce((select e.position from taskledger.event e order by e.position desc limit 1), 0);
  middle bigint;
  found_at record;
begin
  while low < high loop
    middle := low + (high - low + 1) / 2;
    select e.position, e.recorded_at into found_at
      from taskledger.event e
     where e.position <= middle and e.position > low
     order by e.position desc
     limit 1;
    if found_at.position is null then
      low := middle;
    elsif found_at.recorded_at < moment then
      low := middle;
    else
      high := found_at.position - 1;
    end if;
  end loop;
  return low;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.position_before(timestamptz) is
  'Returns about the last position whose event was recorded before a moment.';

-- The header relies on the order of the steps: raise archived_until, take the snapshot seen, list the open
-- transactions. Runs with its owner's rights, because the role archiver may write none of these.
-- +goose StatementBegin
create function taskledger_internal.begin_archive(older_than interval, place text, out run integer,
                                                  out cutoff timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  run_top bigint;
  seen pg_snapshot;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'taskledger: begin_archive needs a READ COMMITTED transaction'
      using errcode = 'active_sql_transaction';
  end if;
  if older_than is null or older_than < interval '0' then
    raise exception 'taskledger: invalid older_than %: must not be negative', older_than
      using errcode = 'invalid_parameter_value';
  end if;
  perform taskledger_internal.lock_archive();
  cutoff := clock_timestamp() - begin_archive.older_than;
  run_top := taskledger_internal.position_before(cutoff);
  perform setval('taskledger.archived_until', greatest(
    run_top, pg_sequence_last_value('taskledger.archived_until'::regclass), 1));
  seen := pg_current_snapshot();
  insert into taskledger.archive_run as r (cutoff, top, seen, place, waits_for)
  values (begin_archive.cutoff, run_top, seen, begin_archive.place, array(
    select l.virtualtransaction
      from pg_locks l
      join pg_stat_activity a on a.pid = l.pid
     where l.locktype = 'virtualxid' and l.granted and a.pid <> pg_backend_pid()
       and a.datid = (select d.oid from pg_database d where d.datname = current_database())))
  returning r.id into run;
  -- archived_before must not go back, and archive_places must name each place.
  delete from taskledger.archive_run r
   where r.id < run - 1000 and r.cutoff < (select max(l.cutoff) from taskledger.archive_run l)
     and (r.place is null or exists (
       select from taskledger.archive_run n where n.id > r.id and n.place = r.place));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.begin_archive(interval, text) is
  'Begins a run of the archive, for tasks that ended longer ago than older_than. place: the archive, null for none. '
  'Returns its id and the moment.';

-- A killed run may have left files before its first batch. Reads archive_batch, one row for some hundred tasks.
-- +goose StatementBegin
create function taskledger_internal.archive_places() returns table (place text, has_volumes boolean)
language plpgsql stable security definer rows 10 set search_path = pg_catalog, pg_temp as $$
begin
  return query
  select p.place, bool_or(p.has_volumes)
    from (
      select regexp_replace(b.file, '/volumes/[^/]*$', ''), true
        from taskledger.archive_batch b
       where b.file is not null
      union all
      select r.place, false from taskledger.archive_run r where r.place is not null) p(place, has_volumes)
   group by p.place
   order by p.place;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.archive_places() is
  'Returns the archives to which runs may have stored tasks, and whether they have.';

-- A transaction without a snapshot takes its next one after the run has begun, so it does not count. If the owner may
-- not see other logins' snapshots, their transactions count until they end. A dispatcher looks up archived keys only
-- after it has seen archived_until raised, when it renews its lease of 1.5 s; the run waits for that before the first
-- batch.
-- +goose StatementBegin
create function taskledger_internal.archive_waits(run integer)
returns table (pid integer, login text, since timestamptz)
language plpgsql volatile security definer rows 10 set search_path = pg_catalog, pg_temp as $$
begin
  return query
  select a.pid, a.usename::text, a.xact_start
    from taskledger.archive_run r
    join pg_locks l on l.virtualtransaction = any (r.waits_for) and l.locktype = 'virtualxid' and l.granted
    join pg_stat_activity a on a.pid = l.pid
   where r.id = archive_waits.run and (a.backend_type is null or a.backend_xmin is not null)
  union all
  select null, 'dispatcher', r.begun_at
    from taskledger.archive_run r
   where r.id = archive_waits.run and clock_timestamp() < r.begun_at + interval '2 seconds'
     and not exists (select from taskledger.archive_batch);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.archive_waits(integer) is
  'Returns the sessions whose transactions are older than a run of the archive, for which it waits.';

-- The candidates of a run among the next events: whole tasks that ended before the cutoff, as seen by its snapshot and
-- by the readers of the feed. Subscribers and the relay hold a task for at most hold after the cutoff, other readers
-- until they have read it. While a projection is being rebuilt, no task is a candidate.
--
-- If readers hold tasks, their cursors are audited first: see audit_cursors.
--
-- Events up to after are not read: their tasks end with a later event, or are read by a later run. Reserved kinds, such
-- as operations, are archived only by name. Tasks of kind taskledger.next stay, because one key stands for all runs
-- that wait behind a task.
--
-- Runs with its owner's rights, because not every caller may read the readers' snapshots. Indexes: position, primary
-- key.
-- +goose StatementBegin
create function taskledger_internal.archivable(run integer, kinds text[], except_kinds text[], hold interval,
                                               after bigint, how_many integer,
                                               out task_kinds text[], out biz_ids text[], out versions integer[],
                                               out events integer, out last bigint, out last_at timestamptz,
                                               out held integer, out held_by text,
                                               out held_since timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
  r record;
  floor constant bigint := taskledger_internal.feed_floor();
  readers text[];
  seen pg_snapshot[];
  until pg_snapshot[];
  after_positions bigint[];
  bounded boolean[];
  of_lines boolean[];
  is_audited boolean := false;
begin
  select a.cutoff, a.top, a.seen into strict r from taskledger.archive_run a where a.id = archivable.run;
  loop
    held_by := null;
    select array_agg(h.reader), array_agg(h.seen), array_agg(h.until), array_agg(h.after_position),
           array_agg(h.is_bounded), array_agg(h.is_of_lines)
      into readers, seen, until, after_positions, bounded, of_lines
      from taskledger_internal.feed_holds h;
    if not 'projector' = any (coalesce(readers, '{}')) or to_regnamespace('taskledger_build_tasks') is not null then
      held_by := 'projector';
      readers := '{projector}';
      seen := '{1:1:}';
      until := '{null}';
      after_positions := '{0}';
      bounded := '{false}';
      of_lines := '{false}';
    end if;
    with page as materialized (
      select e.xid, e.position, e.kind, e.biz_id, e.version, e.type, e.order_key, e.recorded_at
        from taskledger.event e
       where e.position > archivable.after and e.position <= r.top
       order by e.position
       limit archivable.how_many
    ), ended as materialized (
      select p.*
        from page p
       where p.type in ('succeeded', 'cancelled', 'expired', 'discarded') and p.recorded_at < r.cutoff
         and (archivable.kinds is null and not taskledger_internal.is_reserved(p.kind)
              or p.kind = any (archivable.kinds))
         and p.kind <> 'taskledger.next'
         and p.kind <> all (coalesce(archivable.except_kinds, '{}'))
         and (p.position <= floor or pg_visible_in_snapshot(p.xid, r.seen))
         and not exists (
           select from taskledger.event n
            where n.kind = p.kind and n.biz_id = p.biz_id and n.version > p.version)
    ), judged as materialized (
      select e.*, (
               select h.reader
                 from unnest(readers, seen, until, after_positions, bounded, of_lines)
                      h(reader, seen, until, after_position, is_bounded, is_of_lines)
                where not taskledger_internal.feed_passed(e.xid, e.position, floor, h.seen, h.until, h.after_position)
                  and (not h.is_bounded or e.recorded_at >= r.cutoff - archivable.hold)
                  and (not h.is_of_lines or e.order_key is not null)
                limit 1) as held_by
        from ended e
    )
    select array_agg(j.kind order by j.kind, j.biz_id) filter (where j.held_by is null),
           array_agg(j.biz_id order by j.kind, j.biz_id) filter (where j.held_by is null),
           array_agg(j.version order by j.kind, j.biz_id) filter (where j.held_by is null),
           (select count(*) from page), coalesce((select max(p.position) from page p), archivable.after),
           (select max(p.recorded_at) from page p), count(*) filter (where j.held_by is not null),
           coalesce(archivable.held_by, max(j.held_by)), min(j.recorded_at) filter (where j.held_by is not null)
      into task_kinds, biz_ids, versions, events, last, last_at, held, held_by, held_since
      from judged j;
    exit when held = 0 or is_audited or taskledger_internal.audit_cursors() = 0;
    is_audited := true;
  end loop;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.archivable(integer, text[], text[], interval, bigint, integer) is
  'Returns the tasks that a run of the archive may remove, among the how_many next events after a position: of all '
  'kinds, or of some, except others. Also how many events it has read, position and time of the last, and how many '
  'tasks readers of the feed hold, one of these readers, and the earliest end of the tasks.';

-- Runs with its owner's rights: the role archiver writes no run. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.end_archive(run integer, kinds text[], tasks bigint, held bigint, held_by text,
                                                held_since timestamptz) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  update taskledger.archive_run r
     set ended_at = clock_timestamp(), scope = coalesce(end_archive.kinds::text, ''), tasks = end_archive.tasks,
         held = end_archive.held, held_by = end_archive.held_by, held_since = end_archive.held_since
   where r.id = end_archive.run;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.end_archive(integer, text[], bigint, bigint, text, timestamptz) is
  'Records the end of a run of the archive: the kinds that were named, how many tasks it has removed and readers of '
  'the feed hold, one of these readers, and the earliest end of the tasks.';

-- Runs of the same kinds replace each other. A run that was killed or has failed has no end; nor has a later run of the
-- same kinds that is still going on. Index: none; the table contains about 1,000 runs. archive_batch: the last row.
-- +goose StatementBegin
create function taskledger_internal.archive_state(out ended_at timestamptz, out cutoff timestamptz, out tasks bigint,
                                                  out held bigint, out held_by text, out held_since timestamptz,
                                                  out unfinished_since timestamptz, out removed_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  select max(n.ended_at), max(n.cutoff), coalesce(sum(n.tasks), 0)::bigint, coalesce(sum(n.held), 0)::bigint,
         coalesce((array_agg(n.held_by order by n.held_since) filter (where n.held > 0))[1], ''), min(n.held_since)
    into ended_at, cutoff, tasks, held, held_by, held_since
    from (
      select distinct on (r.scope) r.ended_at, r.cutoff, r.tasks, r.held, r.held_by, r.held_since
        from taskledger.archive_run r
       where r.ended_at is not null
       order by r.scope, r.id desc) n;
  select min(r.begun_at) into unfinished_since
    from taskledger.archive_run r
   where r.id > coalesce((select max(d.id) from taskledger.archive_run d where d.ended_at is not null), 0);
  select b.archived_at into removed_at from taskledger.archive_batch b order by b.id desc limit 1;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.archive_state() is
  'Returns when the last run of the archive has ended, the moment before which tasks must have ended, how many tasks '
  'it has removed and readers of the feed hold, one of these readers, and the earliest end of the tasks; since when '
  'runs have begun and not ended, and when a batch was last removed.';

-- As package internal/operation in Go: a task of a reserved kind, enqueued and succeeded in the transaction of the act.
-- +goose StatementBegin
create function taskledger_internal.record_act(action text, actor text, reason text, detail json,
                                               tasks json default null) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  id constant text := record_act.action || '/'
    || to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '-'
    || pg_current_xact_id();
begin
  with tx as materialized (
    select pg_current_xact_id() as xid,
           coalesce((select l.id from taskledger.logins l where l.name = session_user limit 1),
                    taskledger_internal.login_id()) as login_id)
  insert into taskledger.event (xid, version, attempt, shard, type, login_id, kind, biz_id, actor, data)
  select tx.xid, v.version, v.attempt, taskledger.shard_of(id), v.type::taskledger.event_type, tx.login_id,
         'taskledger.operation', id, coalesce(nullif(record_act.actor, ''), session_user),
         case when v.version = 1
              then json_strip_nulls(json_build_object('action', record_act.action, 'reason',
                                                      nullif(record_act.reason, ''), 'tasks', record_act.tasks,
                                                      'detail', record_act.detail)) end
    from tx cross join (values (1, 0, 'enqueued'), (2, 1, 'succeeded')) v(version, attempt, type)
   order by v.version;
  perform taskledger_internal.commit_durably();
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.record_act(text, text, text, json, json) is
  'Records an act of an operator as a task of kind taskledger.operation.';

-- Removes whole tasks. A task is kept if another event has followed, or may follow in an open transaction; if a run
-- waits behind it; if a reader that misses nothing has not read its end; or if a different key with its hash was
-- archived.
--
-- The last events are locked first, so that still_ends waits; then a newer snapshot shows the events after them. The
-- batch and its record commit with the removal. Concurrent calls share no task, because locked ones are skipped, and
-- count one after another.
--
-- Runs with its owner's rights: only the owner deletes. Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.remove_tasks(run integer, kinds text[], biz_ids text[], versions integer[],
                                                 file text, actor text, reason text, out tasks integer,
                                                 out events bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
  r record;
  floor constant bigint := taskledger_internal.feed_floor();
  may_follow_on boolean;
  newest xid8;  -- of the last events
  found_kinds text[];
  found_ids text[];
  found_versions integer[];
  found_states taskledger.task_state[];
  readers text[];
  seen pg_snapshot[];
  until pg_snapshot[];
  after_positions bigint[];
  of_lines boolean[];
  tags text[];
  tag_positions bigint[];
  batch record;
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'taskledger: remove_tasks needs a READ COMMITTED transaction'
      using errcode = 'active_sql_transaction';
  end if;
  select a.cutoff, a.top, a.seen into r from taskledger.archive_run a where a.id = remove_tasks.run;
  if not found then
    raise exception 'taskledger: no run % of the archive', remove_tasks.run
      using errcode = 'invalid_parameter_value', hint = 'begin another run';
  end if;
  if exists (select from taskledger_internal.archive_waits(remove_tasks.run)) then
    raise exception 'taskledger: run % of the archive waits for older transactions', remove_tasks.run
      using errcode = 'object_in_use', hint = 'try again when they have ended';
  end if;
  tasks := 0;
  events := 0;

  select array_agg(l.kind order by l.kind, l.biz_id), array_agg(l.biz_id order by l.kind, l.biz_id),
         array_agg(l.version order by l.kind, l.biz_id), array_agg(l.state order by l.kind, l.biz_id),
         max(l.xid)
    into found_kinds, found_ids, found_versions, found_states, newest
    from (
      select e.kind, e.biz_id, e.version, taskledger.state_after(e.type) as state, e.xid
        from unnest(remove_tasks.kinds, remove_tasks.biz_ids, remove_tasks.versions) k(kind, biz_id, version)
       cross join lateral (
         select h.kind, h.biz_id, h.version, h.type, h.xid
           from taskledger.event h
          where h.kind = k.kind and h.biz_id = k.biz_id and h.version = k.version
            and h.type in ('succeeded', 'cancelled', 'expired', 'discarded') and h.recorded_at < r.cutoff
            and h.position <= r.top and (h.position <= floor or pg_visible_in_snapshot(h.xid, r.seen))
            for update skip locked) e) l;
  -- A rebuild or a seal may have begun since the tasks were chosen. The lock makes a rebuild wait before its snapshot.
  perform taskledger_internal.lock_archive();
  for round in 1..2 loop
    select array_agg(h.reader), array_agg(h.seen), array_agg(h.until), array_agg(h.after_position),
           array_agg(h.is_of_lines)
      into readers, seen, until, after_positions, of_lines
      from taskledger_internal.feed_holds h
     where not h.is_bounded;
    exit when round = 2
           or not exists (
             select from unnest(seen, of_lines) h(seen, is_of_lines)
              where newest >= pg_snapshot_xmin(h.seen) and not h.is_of_lines)
           or taskledger_internal.audit_cursors() = 0;
  end loop;
  if not 'projector' = any (coalesce(readers, '{}')) or to_regnamespace('taskledger_build_tasks') is not null then
    return;
  end if;
  may_follow_on := exists (
    select from taskledger.timer t
     where t.due_at = taskledger_internal.end_of_time() and t.kind = 'taskledger.next');
  select array_agg(k.kind order by k.kind, k.biz_id), array_agg(k.biz_id order by k.kind, k.biz_id),
         array_agg(k.version order by k.kind, k.biz_id), array_agg(k.state order by k.kind, k.biz_id)
    into found_kinds, found_ids, found_versions, found_states
    from unnest(found_kinds, found_ids, found_versions, found_states) k(kind, biz_id, version, state)
   where not exists (
       select from taskledger.event n
        where n.kind = k.kind and n.biz_id = k.biz_id and n.version > k.version)
     and not exists (
       select from taskledger.event e
        cross join unnest(readers, seen, until, after_positions, of_lines)
                   h(reader, seen, until, after_position, is_of_lines)
        where e.kind = k.kind and e.biz_id = k.biz_id and e.version = k.version
          and (not h.is_of_lines or e.order_key is not null)
          and not taskledger_internal.feed_passed(e.xid, e.position, floor, h.seen, h.until, h.after_position))
     and not (may_follow_on and exists (
       select from taskledger.timer t
        where t.due_at = taskledger_internal.end_of_time() and t.kind = 'taskledger.next'
          and t.biz_id = taskledger_internal.next_id(k.kind, k.biz_id)))
     and not exists ( -- a duplicate has no event between version 1 and the archived one
       select from (
         select o.rest, o.version
           from taskledger.archived_key o
          where o.hash = taskledger_internal.key_hash(k.kind, k.biz_id)
          limit 1) a
        where (a.rest <> taskledger_internal.key_rest(k.kind, k.biz_id) or k.version <= a.version or exists (
          select from taskledger.event e
           where e.kind = k.kind and e.biz_id = k.biz_id and e.version between 2 and a.version)));
  if found_kinds is null then
    return;
  end if;

  select array_agg(g.tag), array_agg(e.position) into tags, tag_positions
    from unnest(found_kinds, found_ids) k(kind, biz_id)
   cross join lateral (
     select f.position, f.meta from taskledger.event f
      where f.kind = k.kind and f.biz_id = k.biz_id and f.version = 1
      limit 1) e
   cross join lateral taskledger_internal.tags_of(e.meta) g(tag)
   where e.meta is not null;
  insert into taskledger.archive_gap (reader, run, events, first_position, last_position)
  select h.reader, remove_tasks.run, count(*), min(e.position), max(e.position)
    from taskledger_internal.feed_holds h
   cross join unnest(found_kinds, found_ids) k(kind, biz_id)
   cross join lateral (
     select v.xid, v.position from taskledger.event v where v.kind = k.kind and v.biz_id = k.biz_id) e
   where h.is_bounded and newest >= pg_snapshot_xmin(h.read)
     and not taskledger_internal.feed_passed(e.xid, e.position, floor, h.read, h.read_until, h.after_position)
   group by h.reader;
  for batch in
    select k.kind, k.state, array_agg(k.biz_id order by k.biz_id) as ids,
           array_agg(k.version order by k.biz_id) as last_versions
      from unnest(found_kinds, found_ids, found_versions, found_states) k(kind, biz_id, version, state)
     group by k.kind, k.state
     order by k.kind, k.state
  loop
    declare
      batch_id integer;
      removed bigint;
      removed_xor bigint;
      known bigint;
      positions bigint[];
    begin
      insert into taskledger.archive_batch (run, tasks, total, events, positions_xor, first_position, last_position,
                                            last_xid, is_sealed, kind, state, file)
      select remove_tasks.run, cardinality(batch.ids), cardinality(batch.ids) + taskledger_internal.archived_tasks(
               batch.kind, batch.state), count(*), coalesce(bit_xor(e.position), 0), min(e.position),
             max(e.position), max(e.xid),
             'seal' = any (readers), batch.kind, batch.state, remove_tasks.file
        from unnest(batch.ids) k(biz_id)
       cross join lateral (
         select f.position, f.xid from taskledger.event f where f.kind = batch.kind and f.biz_id = k.biz_id) e
      returning id, archive_batch.events, positions_xor into batch_id, removed, removed_xor;
      insert into taskledger.archived_key as a (hash, rest, version, batch)
      select taskledger_internal.key_hash(batch.kind, k.biz_id), taskledger_internal.key_rest(batch.kind, k.biz_id),
             k.version, batch_id
        from unnest(batch.ids, batch.last_versions) k(biz_id, version)
       order by 1
          on conflict (hash) do update
         set version = excluded.version, batch = case batch.state when 'discarded' then a.batch else excluded.batch end
       where a.rest = excluded.rest;
      get diagnostics known = row_count;
      insert into taskledger.mortal_key (batch, hash)
      select batch_id, taskledger_internal.key_hash(batch.kind, k.biz_id)
        from unnest(batch.ids) k(biz_id)
       where exists (select from taskledger.key_life l where l.kind = batch.kind);
      if known < cardinality(batch.ids) then
        raise exception 'taskledger: two keys of kind % have the same hash', batch.kind
          using errcode = 'unique_violation', hint = 'archive other kinds by name, and report this';
      end if;
      with removed as (
        delete from taskledger.event e
         using unnest(batch.ids) k(biz_id)
         where e.kind = batch.kind and e.biz_id = k.biz_id
        returning e.position
      )
      select array_agg(d.position) into positions from removed d;
      perform taskledger_internal.forget_leaves(positions);
      tasks := tasks + cardinality(batch.ids);
      events := events + removed;
    end;
  end loop;
  perform taskledger_internal.forget_tasks(found_kinds, found_ids, tags, tag_positions);

  perform taskledger_internal.record_act('archive', remove_tasks.actor, remove_tasks.reason, (
    select json_object_agg(d.name, d.value)
      from (values ('run', remove_tasks.run::text), ('tasks', tasks::text), ('events', events::text),
                   ('file', remove_tasks.file)) d(name, value)
     where d.value is not null));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.remove_tasks(integer, text[], text[], integer[], text, text, text) is
  'Removes tasks for a run of the archive: those of some keys whose last versions are as given. Records it with an '
  'actor and a reason. Returns how many tasks and events it has removed.';

-- Index: none; the table contains about 1,000 runs.
-- +goose StatementBegin
create function taskledger_internal.archived_before() returns timestamptz
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return (select max(r.cutoff) from taskledger.archive_run r);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.archived_before() is
  'Returns a moment after the ends of all archived tasks; null: no run of the archive has begun.';

-- Index: archive_batch_total, one row of each kind and state.
-- +goose StatementBegin
create function taskledger_internal.archived_totals()
returns table (kind text, state taskledger.task_state, tasks bigint)
language plpgsql stable security definer rows 100 set search_path = pg_catalog, pg_temp as $$
begin
  return query
  with recursive newest as (
    (select b.kind, b.state, b.total
       from taskledger.archive_batch b
      order by b.kind desc, b.state desc, b.id desc
      limit 1)
    union all
    select o.kind, o.state, o.total
      from newest n
     cross join lateral (
       select b.kind, b.state, b.total
         from taskledger.archive_batch b
        where (b.kind, b.state) < (n.kind, n.state)
        order by b.kind desc, b.state desc, b.id desc
        limit 1) o
  )
  select n.kind, n.state, n.total from newest n;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.archived_totals() is
  'Returns how many tasks of each kind and state were archived.';

-- How long serve keeps the finished tasks of a kind, if not as long as all others.
create table taskledger.archive_setting (
  kind       text collate "C" primary key,
  keep       interval check (keep >= interval '0'),  -- null: forever
  actor      text not null,
  updated_at timestamptz not null default clock_timestamp());

comment on table taskledger.archive_setting is
  'How long the archive of serve keeps the finished tasks of a kind, as set by operators; null: forever. Other kinds '
  'have the time of serve --archive-after.';

create view taskledger_internal.archive_settings as
select s.kind, s.keep, s.actor, s.updated_at from taskledger.archive_setting s;

comment on view taskledger_internal.archive_settings is
  'The kinds whose finished tasks the archive of serve keeps for a time of their own; null: forever.';

-- Runs with its owner's rights, and a record in the same transaction. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.set_archive(kind text, keep interval, is_forever boolean, actor text, reason text)
returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform taskledger_internal.check_key(set_archive.kind, 'x');
  perform taskledger_internal.check_actor(set_archive.actor);
  if set_archive.keep is null and not set_archive.is_forever then
    delete from taskledger.archive_setting s where s.kind = set_archive.kind;
  else
    insert into taskledger.archive_setting as s (kind, keep, actor)
    values (set_archive.kind, case when not set_archive.is_forever then set_archive.keep end,
            coalesce(nullif(set_archive.actor, ''), session_user))
        on conflict on constraint archive_setting_pkey do update
       set keep = excluded.keep, actor = excluded.actor, updated_at = excluded.updated_at;
  end if;
  perform taskledger_internal.record_act('archive.keep', set_archive.actor, set_archive.reason, json_build_object(
    'kind', set_archive.kind, 'keep', case when set_archive.is_forever then 'forever'
                                           else coalesce(set_archive.keep::text, 'default') end));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.set_archive(text, interval, boolean, text, text) is
  'Sets how long serve keeps the finished tasks of a kind; null and not is_forever: as long as those of others.';

-- With its owner's rights, and a record in the same transaction. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.set_key_life(kind text, keep interval, actor text, reason text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform taskledger_internal.check_key(set_key_life.kind, 'x');
  perform taskledger_internal.check_actor(set_key_life.actor);
  if set_key_life.keep is null then
    delete from taskledger.key_life l where l.kind = set_key_life.kind;
  else
    insert into taskledger.key_life as l (kind, keep, actor)
    values (set_key_life.kind, set_key_life.keep, coalesce(nullif(set_key_life.actor, ''), session_user))
        on conflict on constraint key_life_pkey do update
       set keep = excluded.keep, actor = excluded.actor, updated_at = excluded.updated_at;
  end if;
  perform taskledger_internal.record_act('archive.keys', set_key_life.actor, set_key_life.reason, json_build_object(
    'kind', set_key_life.kind, 'keep', coalesce(set_key_life.keep::text, 'forever')));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.set_key_life(text, interval, text, text) is
  'Sets how long the keys of a kind stay known that are archived from now on; null: forever.';

-- Forgets the keys of one batch: a task may have been archived again since, then its key belongs to a later batch. With
-- its owner's rights. Indexes: primary keys of mortal_key and archive_batch; a few batches are passed over.
-- +goose StatementBegin
create function taskledger_internal.forget_keys(actor text, reason text, out keys bigint)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  due record;
begin
  perform taskledger_internal.lock_archive();
  select b.id, b.kind into due
    from taskledger.archive_batch b
    join taskledger.key_life l on l.kind = b.kind
   where b.id >= (select m.batch from taskledger.mortal_key m order by m.batch limit 1)
     and b.archived_at < clock_timestamp() - l.keep
     and exists (select from taskledger.mortal_key m where m.batch = b.id)
   order by b.id
   limit 1;
  if due.id is null then
    return;
  end if;
  delete from taskledger.archived_key a
   where a.hash = any (array(select m.hash from taskledger.mortal_key m where m.batch = due.id)) and a.batch = due.id;
  get diagnostics keys = row_count;
  delete from taskledger.mortal_key m where m.batch = due.id;
  perform taskledger_internal.record_act('archive.forget', forget_keys.actor, forget_keys.reason, json_build_object(
    'kind', due.kind, 'keys', keys));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.forget_keys(text, text) is
  'Forgets the archived keys of a batch whose time in key_life is over, and records it. Returns their number; null: '
  'none is due.';

-- Index: none; a batch is about 1,000 tasks.
-- +goose StatementBegin
create function taskledger_internal.archive_tally(out events bigint, out positions_xor bigint, out until bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  select coalesce(sum(b.events), 0)::bigint, coalesce(bit_xor(b.positions_xor), 0)
    into events, positions_xor
    from taskledger.archive_batch b
   where b.is_sealed;
  until := taskledger_internal.archived_until();
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.archive_tally() is
  'Returns the number of sealed events that the archive has removed, the exclusive or of their positions, and a '
  'position that none of them is above.';

revoke all on all tables in schema taskledger, taskledger_internal from public;
revoke all on all sequences in schema taskledger, taskledger_internal from public;
revoke all on all functions in schema taskledger, taskledger_internal from public;
