-- Erasure removes the data, meta and actor of tasks for good, with all copies in the database.
-- Owner: package ledger.
--
--   erasure  written by erase_tasks, read by ledger
--
-- Package internal/erasure calls erase_tasks, and package internal/archive import_erasure. Others call erased_until and
-- has_erased_args. The relay and package internal/archive read the view erasures.
--
-- One transaction does everything in the database. Afterwards the relay deletes the messages, when it reads the act's
-- record, and the files are rewritten from the list. So an erasure may be killed at any point, and run again.

-- +goose Up

-- One row for each task of each act. Kinds and biz_ids contain no personal data.
create table taskledger.erasure (
  id        uuid not null,
  kind      text collate "C" not null,
  biz_id    text collate "C" not null,
  until     bigint not null,          -- no erased event has a higher position
  shard     smallint not null,
  first_at  timestamptz,              -- recorded_at of the first and the last event that was in the table; null: none
  last_at   timestamptz,
  erased_at timestamptz not null default clock_timestamp(),
  xid       xid8 not null default pg_current_xact_id(),
  actor     text not null,
  reason    text not null,
  primary key (kind, biz_id, id));

create index erasure_id on taskledger.erasure (id);
create index erasure_last_at on taskledger.erasure (last_at) where last_at is not null;

comment on table taskledger.erasure is
  'The tasks whose data, meta and actor were erased, and up to which position. Append-only.';

create trigger erasure_append_only
  before update or delete or truncate on taskledger.erasure
  for each statement execute function taskledger_internal.refuse_change();

create view taskledger.erasures as
select x.id, x.kind, x.biz_id, x.until, x.shard, x.first_at, x.last_at, x.erased_at, x.actor, x.reason
  from taskledger.erasure x;

comment on view taskledger.erasures is
  'The tasks that were erased: data, meta and actor of their events up to position until are removed. id: of the act.';

-- Runs with its owner's rights, for every role that reads archived tasks. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.erased_until(kind text, biz_id text) returns bigint
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return coalesce((
    select max(x.until)
      from taskledger.erasure x
     where x.kind = erased_until.kind and x.biz_id = erased_until.biz_id), 0);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.erased_until(text, text) is
  'Returns the position up to which the events of a task are erased; 0: it was not erased.';

-- Runs with its owner's rights, like erased_until. Indexes: primary keys, event_run.
-- +goose StatementBegin
create function taskledger_internal.has_erased_args(kind text, biz_id text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return exists (
    select from taskledger.erasure x
      join taskledger.event e on e.kind = x.kind and e.biz_id = x.biz_id and e.position <= x.until
     where x.kind = has_erased_args.kind and x.biz_id = has_erased_args.biz_id
       and e.version = taskledger_internal.args_version(has_erased_args.kind, has_erased_args.biz_id));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.has_erased_args(text, text) is
  'Returns whether the args of a task are erased, so that it cannot be released.';

-- These events keep their data: the dispatcher has given a task its turn. They name no person, and the line needs them.
-- +goose StatementBegin
create function taskledger_internal.is_turn(type taskledger.event_type, data json) returns boolean
language sql immutable parallel safe
return type = 'released' and coalesce(starts_with(data::text, '{"reason":"turn"'), false);
-- +goose StatementEnd

comment on function taskledger_internal.is_turn(taskledger.event_type, json) is
  'Returns whether an event gives a task its turn in its line: an erasure keeps it.';

-- Only an erasure's transaction may change an event, and only remove its data, meta and actor. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.check_erasure() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  if num_nonnulls(new.data, new.meta, new.actor) > 0 or not exists (
       select from taskledger.erasure x
        where x.kind = old.kind and x.biz_id = old.biz_id and x.until >= old.position
          and x.xid = pg_current_xact_id_if_assigned() and age(x.xmin) <= 0) then
    raise exception 'taskledger.event is append-only: UPDATE refused'
      using errcode = 'restrict_violation',
            hint = 'correct a fact by appending another event; taskledger erase removes data, meta and actor';
  end if;
  return new;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_erasure() is
  'The trigger that lets an erasure alone change events.';

drop trigger event_append_only on taskledger.event;
create trigger event_append_only
  before delete or truncate or update of xid, position, recorded_at, version, attempt, type, login_id, run, shard,
                                         data_version, priority, kind, biz_id, order_key, partition
  on taskledger.event
  for each statement execute function taskledger_internal.refuse_event_change();

create trigger event_erasure
  before update on taskledger.event
  for each row execute function taskledger_internal.check_erasure();

comment on table taskledger.event is
  'The ledger: one row for each event of a task (kind, biz_id), numbered by version. '
  'Rows are appended and never changed. The archive removes finished tasks, as a whole; an erasure removes data, meta '
  'and actor.';

-- Statistics contain durations from data. Up to the minute of the last erased event they stay, like the statistics of
-- archived tasks. Indexes: none on archive_run, which contains about 1,000 runs; erasure_last_at.
-- +goose StatementBegin
create or replace function taskledger_internal.archived_before() returns timestamptz
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return greatest((select max(r.cutoff) from taskledger.archive_run r),
                  (select max(x.last_at) from taskledger.erasure x));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.archived_before() is
  'Returns a moment after the ends of all archived tasks, and not before the last erased event; null: neither exists.';

-- The webhook deliveries about the tasks' events, whose errors contain receivers' answers, the alarms that show one of
-- the tasks, and the tasks that stand for runs behind them, with the args of these runs. Reads all alarms, and all
-- deliveries if one of the tasks is archived: its events' positions are in no table. Index: primary key of event.
-- +goose StatementBegin
create function taskledger_internal.copies_of(kinds text[], biz_ids text[]) returns table (kind text, biz_id text)
language plpgsql stable security definer rows 10 set search_path = pg_catalog, pg_temp
set enable_seqscan = off set jit = off as $$
declare
  unreadable constant text := E'\\\\u(?:0000|[dD][89a-fA-F])'; -- the operator ->> refuses these escapes
  archived constant text[] := (
    select array_agg(k.kind || '/' || k.biz_id)
      from unnest(copies_of.kinds, copies_of.biz_ids) k(kind, biz_id)
     where taskledger_internal.archived_version(k.kind, k.biz_id) is not null);
begin
  if archived is not null then
    return query
    select v.kind, v.biz_id
      from (select distinct c.kind from taskledger.task_counts c where starts_with(c.kind, 'taskledger.webhook.')) r
      join taskledger.event v on v.kind = r.kind and v.version = 1
     where case when v.data::text !~ unreadable
                then (v.data ->> 'kind') || '/' || (v.data ->> 'biz_id') = any (archived) end;
  end if;
  return query
  select d.kind, d.biz_id
    from unnest(copies_of.kinds, copies_of.biz_ids) k(kind, biz_id)
    join taskledger.event e on e.kind = k.kind and e.biz_id = k.biz_id
   cross join lateral (
     select distinct c.kind from taskledger.task_counts c where starts_with(c.kind, 'taskledger.webhook.')) r
   cross join lateral (
     select v.kind, v.biz_id
       from taskledger.event v
      where v.kind = r.kind and v.version = 1
        and (v.biz_id = e.position::text
             or v.biz_id > e.position || '-again-' and v.biz_id < e.position || '-again.')) d
  union
  select a.kind, a.biz_id
    from taskledger.event a
   where a.kind = 'taskledger.alarm' and a.version = 1
     and exists (
       select from unnest(copies_of.kinds, copies_of.biz_ids) k(kind, biz_id)
        where jsonb_path_exists(a.data::jsonb,
                '$.items[*].groups[*].example ? (@.kind == $kind && @.biz_id == $biz_id)',
                jsonb_build_object('kind', k.kind, 'biz_id', k.biz_id)))
  union
  select n.kind, n.biz_id
    from unnest(copies_of.kinds, copies_of.biz_ids) k(kind, biz_id)
    join taskledger.event n on n.kind = 'taskledger.next'
     and n.biz_id = taskledger_internal.next_id(k.kind, k.biz_id) and n.version = 1;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.copies_of(text[], text[]) is
  'Returns the keys of the deliveries, alarms and waiting runs that are about some tasks.';

-- Erases tasks; unfinished ones are cancelled first. Until the projector has read the end of every task, nothing is
-- erased: is_waiting is true, the cancellations commit, and the caller tries again. A task in neither the table nor the
-- archive is returned in unknown, and erased only if accepts_unknown.
--
-- Locks the rows of the last events before the mutex, like remove_tasks. Runs with its owner's rights, because no role
-- may change events. An audit of the projector may later find events that it missed, without their texts. Indexes:
-- primary keys.
-- +goose StatementBegin
create function taskledger_internal.erase_tasks(id uuid, kinds text[], biz_ids text[], accepts_unknown boolean,
                                                fingerprint text, actor text, reason text,
                                                out is_waiting boolean, out tasks bigint, out events bigint,
                                                out unknown text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
#variable_conflict use_column
declare
  act constant uuid := coalesce(erase_tasks.id, gen_random_uuid());
  floor bigint;
  all_kinds text[];
  all_ids text[];
  r record;
  tags text[];
  tag_positions bigint[];
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'taskledger: erase_tasks needs a READ COMMITTED transaction'
      using errcode = 'active_sql_transaction';
  end if;
  perform taskledger_internal.check_change('cancelled', erase_tasks.actor, erase_tasks.reason, null, null, null);
  if coalesce(erase_tasks.reason, '') = '' then
    raise exception 'taskledger: an erasure needs a reason' using errcode = 'invalid_parameter_value';
  end if;
  is_waiting := false;
  tasks := 0;
  events := 0;
  select k.kind || '/' || k.biz_id into unknown
    from unnest(erase_tasks.kinds, erase_tasks.biz_ids) k(kind, biz_id)
   where not erase_tasks.accepts_unknown
     and not exists (select from taskledger.event e where e.kind = k.kind and e.biz_id = k.biz_id)
     and taskledger_internal.archived_version(k.kind, k.biz_id) is null
   limit 1;
  if unknown is not null then
    return;
  end if;
  select array_agg(k.kind order by k.kind, k.biz_id), array_agg(k.biz_id order by k.kind, k.biz_id)
    into all_kinds, all_ids
    from (
      select k.kind, k.biz_id from unnest(erase_tasks.kinds, erase_tasks.biz_ids) k(kind, biz_id)
      union
      select c.kind, c.biz_id from taskledger_internal.copies_of(erase_tasks.kinds, erase_tasks.biz_ids) c) k;

  for r in select k.kind, k.biz_id from unnest(all_kinds, all_ids) k(kind, biz_id) loop
    perform taskledger_internal.change_task(r.kind, r.biz_id, 'cancelled', null, erase_tasks.actor,
                                            erase_tasks.reason, null, null, null, false);
  end loop;
  for r in select k.kind, k.biz_id from unnest(all_kinds, all_ids) k(kind, biz_id) loop
    perform from taskledger.event e
      where e.kind = r.kind and e.biz_id = r.biz_id
        and e.version = (select max(n.version) from taskledger.event n where n.kind = r.kind and n.biz_id = r.biz_id)
        for update;
  end loop;
  perform taskledger_internal.lock_archive();
  floor := taskledger_internal.feed_floor();
  is_waiting := to_regnamespace('taskledger_build_tasks') is not null or exists (
    select from unnest(all_kinds, all_ids) k(kind, biz_id)
     cross join lateral (
       select e.xid, e.position, e.type
         from taskledger.event e
        where e.kind = k.kind and e.biz_id = k.biz_id
        order by e.version desc
        limit 1) e
     where e.type not in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded')
        or not exists (
          select from (
            select c.is_local, c.seen, c.until, c.after_position
              from taskledger.cursors c
             where c.reader = 'projector'
             order by c.n desc
             limit 1) p
           where p.is_local
             and taskledger_internal.feed_passed(e.xid, e.position, floor, p.seen, p.until, p.after_position)));
  if is_waiting then
    return;
  end if;

  insert into taskledger.erasure (id, kind, biz_id, until, shard, first_at, last_at, actor, reason)
  select act, k.kind, k.biz_id, greatest(coalesce(e.until, 0), taskledger_internal.archived_until()),
         coalesce(e.shard, taskledger.shard_of(k.biz_id)), e.first_at, e.last_at,
         coalesce(nullif(erase_tasks.actor, ''), session_user), erase_tasks.reason
    from unnest(all_kinds, all_ids) k(kind, biz_id)
   cross join lateral (
     select max(v.position) as until, max(v.shard) as shard, min(v.recorded_at) as first_at,
            max(v.recorded_at) as last_at
       from taskledger.event v
      where v.kind = k.kind and v.biz_id = k.biz_id) e
      on conflict (kind, biz_id, id) do nothing;
  select array_agg(g.tag), array_agg(e.position) into tags, tag_positions
    from unnest(all_kinds, all_ids) k(kind, biz_id)
    join taskledger.event e on e.kind = k.kind and e.biz_id = k.biz_id and e.version = 1
   cross join lateral taskledger_internal.tags_of(e.meta) g(tag);
  for r in select k.kind, k.biz_id from unnest(all_kinds, all_ids) k(kind, biz_id) loop
    perform taskledger.erase_salts(r.kind, r.biz_id);
  end loop;
  update taskledger.event e
     set data = null, meta = null, actor = null
    from unnest(all_kinds, all_ids) k(kind, biz_id)
   where e.kind = k.kind and e.biz_id = k.biz_id and num_nonnulls(e.data, e.meta, e.actor) > 0
     and not taskledger_internal.is_turn(e.type, e.data);
  get diagnostics events = row_count;
  perform taskledger_internal.erase_projected(all_kinds, all_ids, erase_tasks.fingerprint, tags, tag_positions);
  perform taskledger_internal.erase_failures(all_kinds, all_ids);
  perform taskledger_internal.erase_stopping(all_kinds, all_ids);
  tasks := cardinality(erase_tasks.kinds);
  perform taskledger_internal.record_act('erase', erase_tasks.actor, erase_tasks.reason, json_build_object(
    'erasure', act::text,
    'in_stream_until', (
      select case m.max_age_ms when 0 then 'forever'
               else to_char((clock_timestamp() + m.max_age_ms * interval '1 millisecond') at time zone 'UTC',
                            'YYYY-MM-DD"T"HH24:MI:SS"Z"') end
        from (select n.max_age_ms from taskledger_internal.relay_mark n order by n.n desc limit 1) m)),
    (select json_agg(k.kind || '/' || k.biz_id) from unnest(all_kinds, all_ids) k(kind, biz_id)));
  perform taskledger_internal.wake();
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.erase_tasks(uuid, text[], text[], boolean, text, text, text) is
  'Erases tasks, with the deliveries and alarms about them, and records the act with an actor and a reason. '
  'fingerprint: of an error without text. in_stream_until in the record: when the stream removes by age the messages '
  'that the relay could not remove, or forever. Returns whether the projector must first read more, how many tasks '
  'and events are erased, and a task that is unknown.';

-- Takes over the list in an archive's files, for an import by the owner. Index: primary key of event.
-- +goose StatementBegin
create function taskledger_internal.import_erasure(id uuid, kinds text[], biz_ids text[], positions bigint[],
                                                   erased_at timestamptz, actor text, reason text) returns void
language sql volatile set search_path = pg_catalog, pg_temp
begin atomic
  insert into taskledger.erasure (id, kind, biz_id, until, shard, first_at, last_at, erased_at, actor, reason)
  select import_erasure.id, k.kind, k.biz_id, k.until, coalesce(e.shard, taskledger.shard_of(k.biz_id)), e.first_at,
         e.last_at, import_erasure.erased_at, import_erasure.actor, import_erasure.reason
    from unnest(import_erasure.kinds, import_erasure.biz_ids, import_erasure.positions) k(kind, biz_id, until)
   cross join lateral (
     select max(v.shard) as shard, min(v.recorded_at) as first_at, max(v.recorded_at) as last_at
       from taskledger.event v
      where v.kind = k.kind and v.biz_id = k.biz_id) e;
end;
-- +goose StatementEnd

comment on function taskledger_internal.import_erasure(uuid, text[], text[], bigint[], timestamptz, text, text) is
  'Adds an erasure that files list, whose events are imported without texts.';

revoke all on all tables in schema taskledger, taskledger_internal from public;
revoke all on all functions in schema taskledger, taskledger_internal from public;
