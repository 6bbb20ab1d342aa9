-- Limits: how many tasks of a kind may wait.
-- Owner: package ledger.
--
--   kind_limit  written and read by ledger (limit, delete limit)
--   limits_set  drawn from and read by ledger
--   rejected    counted and read by ledger
--   over_limit  written by may_exceed_limit, for the policy limits of event
--
-- Other packages read the view overload, which reads the projector's view task_totals.

-- +goose Up

create table taskledger.kind_limit (
  kind           text collate "C" primary key,
  max_waiting    bigint not null check (max_waiting >= 0),
  policy         text not null check (policy in ('reject', 'discard', 'discard_oldest', 'caller_runs')),
  retry_after_ms bigint not null check (retry_after_ms >= 0),  -- hint for a rejected producer
  actor          text not null,
  updated_at     timestamptz not null default clock_timestamp(),
  check (not starts_with(kind, 'taskledger.')),
  check (updated_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'));

comment on table taskledger.kind_limit is
  'How many tasks of a kind may wait, as set by an operator. A kind without a row is unlimited.';

-- An enqueue searches for a limit of its kind only if there has ever been a limit: the search costs a tenth of its time
-- on the server, the value of a sequence a fiftieth. The value belongs to no transaction, so an enqueue that sees a
-- limit also sees its draw.
create sequence taskledger.limits_set;

comment on sequence taskledger.limits_set is 'Internal: how many limits have been set; null while there has been none.';

-- +goose StatementBegin
create function taskledger_internal.note_limit() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform nextval('taskledger.limits_set');
  return new;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.note_limit() is 'The trigger that notes that a limit is set.';

create trigger kind_limit_noted before insert on taskledger.kind_limit
  for each row execute function taskledger_internal.note_limit();

-- For rows of a logical replication too.
alter table taskledger.kind_limit enable always trigger kind_limit_noted;

-- A kind with the policy discard_oldest is never closed: the scheduler discards its oldest tasks. A task that is due
-- later, or waits for predecessors or for its turn in line, counts with the tasks that are: so neither a due time nor
-- an order key bypasses the limit, and such tasks do not keep others from being enqueued.
create view taskledger.overload as
select l.kind, l.policy, l.max_waiting, l.retry_after_ms, coalesce(c.value, 0) as waiting,
       l.policy <> 'discard_oldest' and coalesce(c.value, 0) >= l.max_waiting as closed,
       s.value as scheduled,
       l.policy <> 'discard_oldest' and coalesce(c.value, 0) + s.value >= l.max_waiting as closed_later
  from taskledger.kind_limit l
  left join lateral (
   select t.tasks as value from taskledger_internal.task_totals t
    where t.kind = l.kind and t.state = 'available'
    order by t.n desc limit 1) c on true
 cross join lateral (
   select coalesce((
            select t.tasks from taskledger_internal.task_totals t
             where t.kind = l.kind and t.state = 'scheduled'
             order by t.n desc limit 1), 0)
          + coalesce((
            select t.tasks from taskledger_internal.task_totals t
             where t.kind = l.kind and t.state = 'in_line'
             order by t.n desc limit 1), 0) as value) s;

comment on view taskledger.overload is
  'Each kind with a limit, its numbers of available tasks (waiting) and of tasks that are scheduled or in line '
  '(scheduled), as counted by the projector, and whether enqueueing is closed: for tasks that become available at '
  'once, and for others (closed_later). Tasks that the projector has not yet counted can exceed the limit.';

-- Enqueue calls it only if there has been a limit, or for a payload over 4 KiB: as a part of the
-- statement these queries cost a quarter of its time on the server, even where they find nothing. No limit of sizes
-- is below 4 KiB.
-- Reads settings, limits and counts by key; locks nothing. Runs with its owner's rights: a producer needs none on them.
-- +goose StatementBegin
create function taskledger_internal.admits(kind text, args_bytes integer, meta_bytes integer) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  if greatest(admits.args_bytes, admits.meta_bytes) > 4096 and exists (
      select from taskledger.setting s
       where s.name = 'max_args_bytes' and admits.args_bytes > s.value::integer
          or s.name = 'max_meta_bytes' and admits.meta_bytes > s.value::integer) then
    return false;
  end if;
  return not exists (select from taskledger.overload o where o.kind = admits.kind and o.closed);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.admits(text, integer, integer) is
  'Reports whether a task of this kind, with args and meta of these sizes, may be enqueued as available.';

-- The limits bind each insert of an event by a role, whatever its statement: the policy limits of 00012_rights.sql. A
-- trigger would do the same and cost each insert a twentieth of its time on the server. The functions with their
-- owner's rights, such as taskledger.enqueue, apply the limits themselves.
--
-- A task is begun by its version 1, and by the event of a next run. An event that replaces args, or reschedules,
-- follows an unfinished task.
--
-- Stable, so that it reads the snapshot in which the statement itself has found the limit not reached. With its owner's
-- rights, as admits. Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.exceeds_limit(kind text, biz_id text, version integer, type taskledger.event_type,
                                                  run integer) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
  return exists (
    select from taskledger.overload o
     where o.kind = exceeds_limit.kind
       and case exceeds_limit.type when 'enqueued' then o.closed else o.closed_later end)
    and (exceeds_limit.version = 1 or exceeds_limit.run is not null and exists (
      select from taskledger.event e
       where e.kind = exceeds_limit.kind and e.biz_id = exceeds_limit.biz_id
         and e.version = exceeds_limit.version - 1
         and e.type in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded')));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.exceeds_limit(text, text, integer, taskledger.event_type, integer) is
  'Reports whether an event begins a task, or its next run, while too many tasks of its kind wait.';

-- With the policy discard, the transaction of a task over the limit must discard it: the trigger of a row of this
-- table checks that at the commit, and removes the row.
create unlogged table taskledger.over_limit (
  kind    text collate "C" not null,
  biz_id  text collate "C" not null,
  version integer not null,
  primary key (kind, biz_id, version));

comment on table taskledger.over_limit is
  'Internal: tasks over a limit that an open transaction has begun, and must discard. Empty outside of transactions.';

-- Index: primary keys. A task that the transaction has not begun existed before.
-- +goose StatementBegin
create function taskledger_internal.keep_limit() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  delete from taskledger.over_limit o where o.kind = new.kind and o.biz_id = new.biz_id and o.version = new.version;
  if taskledger_internal.appended_here(new.kind, new.biz_id, new.version) is not null and not exists (
       select from taskledger.event e
        where e.kind = new.kind and e.biz_id = new.biz_id and e.version = new.version + 1
          and e.type = 'discarded') then
    perform taskledger_internal.refuse_overload(new.kind, false);
  end if;
  return null;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.keep_limit() is
  'The trigger that refuses the commit of a task over the limit of its kind, unless the transaction has discarded it.';

create constraint trigger over_limit_kept after insert on taskledger.over_limit deferrable initially deferred
  for each row execute function taskledger_internal.keep_limit();

-- +goose StatementBegin
create function taskledger_internal.may_exceed_limit(kind text, biz_id text, version integer,
                                                     type taskledger.event_type) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  how constant text := (select l.policy from taskledger.kind_limit l where l.kind = may_exceed_limit.kind);
begin
  if how = 'caller_runs' and may_exceed_limit.type = 'enqueued'
      and taskledger_internal.refused_kind(array[may_exceed_limit.kind], true) is null then
    return true; -- the caller may run it: see workers.Caller in Go
  elsif how in ('reject', 'caller_runs') then
    perform taskledger_internal.refuse_overload(may_exceed_limit.kind, may_exceed_limit.type <> 'enqueued');
  end if;
  insert into taskledger.over_limit (kind, biz_id, version)
  values (may_exceed_limit.kind, may_exceed_limit.biz_id, may_exceed_limit.version)
      on conflict (kind, biz_id, version) do nothing;
  return true;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.may_exceed_limit(text, text, integer, taskledger.event_type) is
  'Returns true for the event of a task over the limit of its kind that the session may run, or must discard in the '
  'same transaction. Raises SQLSTATE 53400 if it must not begin.';

-- A sequence keeps its count when the transaction is rolled back, and leaves no dead rows. A crash of
-- PostgreSQL may add up to 32, which its WAL holds as drawn, and lose the rejections of the last second.
create sequence taskledger.rejected;

comment on sequence taskledger.rejected is
  'Counts the calls that were rejected because too many tasks of their kind wait, rolled back or not.';
