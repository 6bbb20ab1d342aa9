-- Changes of tasks by operators and producers, and the kinds that are paused.
-- Owner: package internal/operator; of the changes, package ledger.
--
--   pause  written and read by operator; the deliveries of a receiver that is gone are paused by internal/webhooks
--
-- Workers read the view paused_kinds.

-- +goose Up

-- One change of one task: cancelled, released, scheduled or buried. A compare-and-set, as each append: if it is lost,
-- the new head decides, at most 20 times. A worker that runs the task is fenced off.
--
-- Runs with its caller's rights: the policies of an operator's role decide which events it may append. change_own_task
-- calls it for producers. outcome is empty, or why nothing was written: unknown, version, state, time.
--
-- It waits for concurrent transactions that append to the task. Volatile, so that each of its statements sees the
-- winner of a race. Indexes: primary key, event_run.
-- +goose StatementBegin
create function taskledger_internal.change_task(kind text, biz_id text, type taskledger.event_type, expected integer,
                                                actor text, reason text, after_us bigint, at timestamptz,
                                                priority integer, of_login boolean)
returns table (outcome text, state taskledger.task_state, version integer, appended taskledger.event)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  in_place constant boolean := change_task.priority is not null and num_nonnulls(after_us, at) = 0;
  head record;
  due timestamptz;
  new_version integer;
begin
  outcome := '';
  for conflicts in 1 .. 20 loop
    select h.version, h.type, h.data, h.meta into head
      from taskledger.event h
     where h.kind = change_task.kind and h.biz_id = change_task.biz_id
     order by h.version desc
     limit 1;
    if not found then
      outcome := 'unknown';
      exit;
    end if;
    state := taskledger.state_after(head.type);
    version := head.version;
    if change_task.of_login then
      perform taskledger_internal.check_own_task(change_task.kind, change_task.biz_id);
    end if;
    if head.version <> change_task.expected then
      outcome := 'version';
    elsif not taskledger_internal.may_follow(change_task.type, head.type)
        or change_task.type = 'released' and state = 'available' then
      outcome := 'state';
    end if;
    if outcome = '' and change_task.type = 'released' and state in ('dead', 'cancelled', 'expired', 'discarded')
        and taskledger_internal.has_erased_args(change_task.kind, change_task.biz_id) then
      raise exception 'taskledger: task %/% is erased, and cannot run', change_task.kind, change_task.biz_id
        using errcode = 'object_not_in_prerequisite_state',
              hint = 'enqueue it again with args and if_exists => ''rerun''';
    end if;
    due := change_task.at;
    if outcome = '' and in_place and state not in ('available', 'in_line') then
      -- the time is the first member, see with_moment
      due := substring(coalesce(substring(head.data::text from '^[{]"(?:run_at|retry_at)":"[^"]*"'),
                                head.meta::text) from '^[{]"(?:run_at|retry_at)":"([^"]*)"')::timestamptz;
      if due is null then
        outcome := 'time';
      end if;
    end if;
    exit when outcome <> '';
    if change_task.of_login and change_task.type = 'released' and exists (
         select from taskledger.overload o where o.kind = change_task.kind and o.closed)
        and state in ('dead', 'cancelled', 'expired', 'discarded') then
      perform taskledger_internal.refuse_overload(change_task.kind, false);
    end if;
    new_version := taskledger_internal.append_event(
      change_task.kind, change_task.biz_id, head.version, change_task.type,
      coalesce(nullif(change_task.actor, ''), session_user), '{"reason":' || to_json(change_task.reason) || '}',
      case when in_place and state in ('available', 'in_line') then 1 else change_task.after_us end, due,
      change_task.priority);
    if new_version is not null then
      select e.* into appended
        from taskledger.event e
       where e.kind = change_task.kind and e.biz_id = change_task.biz_id and e.version = new_version;
      perform taskledger_internal.wake();
      exit;
    end if;
  end loop;
  if outcome = '' and new_version is null then
    outcome := 'version';
  end if;
  return next;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.change_task(text, text, taskledger.event_type, integer, text, text, bigint,
                                                    timestamptz, integer, boolean) is
  'Appends a change of a task at version expected (null: any). outcome is empty, or the reason why nothing was '
  'written; state and version are those before the change; appended is the event.';

-- +goose StatementBegin
create function taskledger_internal.check_author(author integer, kind text, biz_id text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  owner constant text := (select l.name from taskledger.logins l where l.id = check_author.author);
begin
  if starts_with(kind, 'taskledger.') or owner is distinct from session_user and not coalesce((
       select pg_has_role(session_user, r.oid, 'member') from pg_roles r where r.rolname = owner), false) then
    raise exception 'taskledger: login % may not change task %/%: another login has enqueued it',
        session_user, kind, biz_id
      using errcode = 'insufficient_privilege',
            hint = 'grant it the role operator, or the role of the login that enqueued the task';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_author(integer, text, text) is
  'Raises an error unless author is the id of the session''s login, or of a login whose member it is.';

-- +goose StatementBegin
create function taskledger_internal.check_own_task(kind text, biz_id text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  perform taskledger_internal.check_author(
    (select e.login_id
       from taskledger.event e
      where e.kind = check_own_task.kind and e.biz_id = check_own_task.biz_id
        and e.version = taskledger_internal.args_version(check_own_task.kind, check_own_task.biz_id)),
    check_own_task.kind, check_own_task.biz_id);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_own_task(text, text) is
  'Raises an error unless the session''s login, or a login whose member it is, has enqueued the task''s last run.';

-- For functions with their owner's rights: the setting role is the role that the caller has set, while current_user is
-- the owner. An operator may replace runs as it may change tasks.
-- +goose StatementBegin
create function taskledger_internal.check_replace(author integer, kind text, biz_id text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if not has_function_privilege(
       coalesce(nullif(current_setting('role'), 'none'), session_user),
       'taskledger_internal.change_task(text, text, taskledger.event_type, integer, text, text, bigint, timestamptz, '
       'integer, boolean)', 'execute') then
    perform taskledger_internal.check_author(check_replace.author, check_replace.kind, check_replace.biz_id);
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_replace(integer, text, text) is
  'Raises an error if the caller is no operator, and another login, whose member it is not, has enqueued the run that '
  'it replaces, or that its run follows: the login with the id author.';

-- Runs with its owner's rights: a producer may neither read events nor append these.
-- +goose StatementBegin
create function taskledger_internal.change_own_task(kind text, biz_id text, type taskledger.event_type,
                                                    expected integer, actor text, reason text, after_us bigint,
                                                    at timestamptz, priority integer)
returns table (outcome text, state taskledger.task_state, version integer, appended taskledger.event)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  if change_own_task.type not in ('cancelled', 'released', 'scheduled') then
    raise exception 'taskledger: login % may not append %', session_user, change_own_task.type
      using errcode = 'insufficient_privilege', hint = 'grant it the role operator';
  end if;
  perform taskledger_internal.check_change(change_own_task.type, change_own_task.actor, change_own_task.reason,
                                           change_own_task.after_us, change_own_task.at, change_own_task.priority);
  return query
  select c.outcome, c.state, c.version, c.appended
    from taskledger_internal.change_task(
           change_own_task.kind, change_own_task.biz_id, change_own_task.type, change_own_task.expected,
           change_own_task.actor, change_own_task.reason, change_own_task.after_us, change_own_task.at,
           change_own_task.priority, true) c;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.change_own_task(text, text, taskledger.event_type, integer, text, text, bigint,
                                                        timestamptz, integer) is
  'change_task for the login that has enqueued the task.';

-- +goose StatementBegin
create function taskledger_internal.check_change(type taskledger.event_type, actor text, reason text, after_us bigint,
                                                 at timestamptz, priority integer) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  perform taskledger_internal.check_actor(actor);
  if octet_length(reason) > 4096 then
    raise exception 'taskledger: invalid reason: must have at most 4096 bytes, got %', octet_length(reason)
      using errcode = 'invalid_parameter_value';
  elsif priority not between 1 and 4 then
    raise exception 'taskledger: invalid priority %: must be between 1 (urgent) and 4 (low)', priority
      using errcode = 'invalid_parameter_value';
  end if;
  if type = 'scheduled' then
    if num_nonnulls(after_us, at, priority) = 0 then
      raise exception 'taskledger: invalid run_at: run_at, run_in or priority must be set'
        using errcode = 'invalid_parameter_value';
    end if;
    perform taskledger_internal.check_times(at, after_us * interval '1 microsecond', null, null);
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_change(taskledger.event_type, text, text, bigint, timestamptz, integer) is
  'Raises an error for an argument of a change that package ledger rejects.';

-- An operator may change all tasks, a producer only tasks that its login has enqueued, by the function that the
-- caller's role may execute.
-- +goose StatementBegin
create function taskledger_internal.change(kind text, biz_id text, type taskledger.event_type, expected integer,
                                           actor text, reason text, after_us bigint, at timestamptz, priority integer)
returns table (outcome text, state taskledger.task_state, version integer, appended taskledger.event)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  is_operator constant boolean := has_function_privilege(
    'taskledger_internal.change_task(text, text, taskledger.event_type, integer, text, text, bigint, timestamptz, '
    'integer, boolean)', 'execute');
  why constant text := coalesce(
    nullif(change.reason, ''),
    case change.type when 'scheduled' then 'rescheduled' else change.type::text end
      || case when is_operator then ' by an operator' else ' by the producer' end);
begin
  perform taskledger_internal.check_change(
    change.type, change.actor, change.reason, change.after_us, change.at, change.priority);
  if is_operator then
    return query
    select c.outcome, c.state, c.version, c.appended
      from taskledger_internal.change_task(
             change.kind, change.biz_id, change.type, change.expected, change.actor, why, change.after_us, change.at,
             change.priority, false) c;
  else
    return query
    select c.outcome, c.state, c.version, c.appended
      from taskledger_internal.change_own_task(
             change.kind, change.biz_id, change.type, change.expected, change.actor, why, change.after_us, change.at,
             change.priority) c;
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.change(text, text, taskledger.event_type, integer, text, text, bigint,
                                               timestamptz, integer) is
  'Changes a task with the rights of the caller''s role: see change_task.';

-- +goose StatementBegin
create function taskledger.cancel(kind text, biz_id text, reason text default null, actor text default null,
                                  if_version integer default null)
returns table (is_changed boolean, state taskledger.task_state, version integer)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  select c.outcome = '', case when c.outcome = '' then taskledger.state_after('cancelled') else c.state end,
         coalesce((c.appended).version, c.version, 0)
    from taskledger_internal.change(cancel.kind, cancel.biz_id, 'cancelled', cancel.if_version, cancel.actor,
                                    cancel.reason, null, null, null) c;
end
$$;
-- +goose StatementEnd

comment on function taskledger.cancel(text, text, text, text, integer) is
  'Cancels an unfinished task in the caller''s transaction. The attempt of a worker that runs it cannot commit. A '
  'producer may cancel the tasks that its login has enqueued, an operator all. if_version: that the task must have. '
  'Returns whether it is cancelled, and its state and version now; if is_changed is false, the state does not allow '
  'the change, or is null for a task that does not exist.';

-- +goose StatementBegin
create function taskledger.release(kind text, biz_id text, reason text default null, actor text default null,
                                   if_version integer default null)
returns table (is_changed boolean, state taskledger.task_state, version integer)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  select c.outcome = '', case when c.outcome = '' then taskledger.state_after((c.appended).type) else c.state end,
         coalesce((c.appended).version, c.version, 0)
    from taskledger_internal.change(release.kind, release.biz_id, 'released', release.if_version, release.actor,
                                    release.reason, null, null, null) c;
end
$$;
-- +goose StatementEnd

comment on function taskledger.release(text, text, text, text, integer) is
  'Makes a task that waits for its time, or is dead, cancelled, expired or discarded, available in the caller''s '
  'transaction. Rights and result as of taskledger.cancel.';

-- +goose StatementBegin
create function taskledger.reschedule(kind text, biz_id text, run_at timestamptz default null,
                                      run_in interval default null, priority integer default null,
                                      reason text default null, actor text default null,
                                      if_version integer default null)
returns table (is_changed boolean, state taskledger.task_state, version integer)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  select c.outcome = '', case when c.outcome = '' then taskledger.state_after('scheduled') else c.state end,
         coalesce((c.appended).version, c.version, 0)
    from taskledger_internal.change(reschedule.kind, reschedule.biz_id, 'scheduled', reschedule.if_version,
                                    reschedule.actor, reschedule.reason,
                                    (extract(epoch from reschedule.run_in) * 1e6)::bigint, reschedule.run_at,
                                    reschedule.priority) c;
end
$$;
-- +goose StatementEnd

comment on function taskledger.reschedule(text, text, timestamptz, interval, integer, text, text, integer) is
  'Changes when a task that waits, or has not started, is due, in the caller''s transaction: at run_at, or run_in from '
  'now by the database''s clock. Or it changes its priority, which alone keeps the time. Rights and result as of '
  'taskledger.cancel.';

create table taskledger.pause (
  kind   text collate "C" primary key,
  since  timestamptz not null default clock_timestamp(),
  actor  text not null,
  reason text not null,
  check (since between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'));

comment on table taskledger.pause is 'The kinds that an operator has paused: no worker starts their tasks.';

create view taskledger.paused_kinds as
select p.kind, p.since, p.actor, p.reason from taskledger.pause p;

comment on view taskledger.paused_kinds is 'The kinds whose tasks no worker starts, since when, by whom and why.';

-- A receiver of webhooks that has answered 410 Gone gets no more requests until an operator resumes their kind. With
-- its owner's rights: the login to which the receiver's subscriber belongs may not pause any other kind. Index: primary
-- keys of pause and cursor.
-- +goose StatementBegin
create function taskledger_internal.pause_receiver(receiver text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if taskledger_internal.subscriber_login('subscriber/webhook-' || receiver) is distinct from session_user then
    raise exception 'taskledger: the receiver % has no subscriber of this login', receiver
      using errcode = 'insufficient_privilege';
  end if;
  insert into taskledger.pause (kind, actor, reason)
  values ('taskledger.webhook.' || receiver, session_user, 'the receiver has answered 410 Gone')
  on conflict (kind) do nothing;
  return found;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.pause_receiver(text) is
  'Pauses the deliveries of a receiver of webhooks that has answered 410 Gone, unless they are paused.';

-- A kind whose tasks are sent to a server which has answered 410 Gone. With its owner's rights: a login that may work
-- on the kind may pause it for this reason alone. Index: primary key of pause.
-- +goose StatementBegin
create function taskledger_internal.pause_pushed(kind text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform taskledger_internal.check_kinds(array[pause_pushed.kind], true);
  insert into taskledger.pause (kind, actor, reason)
  values (pause_pushed.kind, session_user, 'the server of its tasks has answered 410 Gone')
  on conflict on constraint pause_pkey do nothing;
  return found;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.pause_pushed(text) is
  'Pauses a kind whose tasks are sent to a server that has answered 410 Gone, unless it is paused.';

-- Locks nothing. Indexes: primary keys. On task_count, a loose scan that goes backwards, so that it lands on the newest
-- row of each total. On task, at most max_aged rows of a kind whose totals are no higher, else none. Without jit: the
-- estimated cost grows with the number of kinds, and PostgreSQL would compile the query at each execution.
-- +goose StatementBegin
create function taskledger_internal.unhandled_kinds(max_aged bigint)
returns table (kind text, waiting bigint, oldest_ms bigint)
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
begin
  return query
  with recursive kinds as (
    (select c.kind from taskledger_internal.task_totals c order by c.kind desc limit 1)
    union all
    select (select c.kind from taskledger_internal.task_totals c where c.kind < k.kind order by c.kind desc limit 1)
      from kinds k
     where k.kind is not null
  ), handled as (
    select distinct w.kind from taskledger_internal.worker_kinds w
  )
  select k.kind, waiting.tasks,
         coalesce(case when (
           select sum(newest.tasks)
             from unnest(enum_range(null::taskledger.task_state)) s(state)
            cross join lateral (
              select c.tasks
                from taskledger_internal.task_totals c
               where c.kind = k.kind and c.state = s.state
               order by c.n desc
               limit 1) newest) <= max_aged
           then (select case when count(*) > max_aged then null
                             else floor(extract(epoch from
                      clock_timestamp() - min(t.updated_at) filter (where t.state in ('available', 'running')))
                    * 1000)::bigint end
                   from (select o.state, o.updated_at
                           from taskledger.tasks o
                          where o.kind = k.kind
                          order by o.biz_id
                          limit max_aged + 1) t) end, -1)
    from kinds k
   cross join lateral (
     select sum(newest.tasks)::bigint as tasks
       from (values ('available'::taskledger.task_state), ('running')) s(state)
      cross join lateral (
        select c.tasks
          from taskledger_internal.task_totals c
         where c.kind = k.kind and c.state = s.state
         order by c.n desc
         limit 1) newest) waiting
   where waiting.tasks > 0 and not exists (select from handled h where h.kind = k.kind);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.unhandled_kinds(bigint) is
  'Returns the kinds with tasks in the projection that are available or running, and no live worker: the '
  'number of these tasks, and how many milliseconds the oldest has been so, -1 for a kind with more than max_aged '
  'tasks in all.';

-- A task is late if it became available before older_than ago: the projection has more available tasks of the kind than
-- the newer events account for. So no task is searched for: events are read backwards from the newest until each
-- available task is met. These are few events while workers keep up, and never events older than older_than. All
-- statements of a stable function share one snapshot. Locks nothing. Indexes: (position), backwards; the primary key of
-- task for each event that made a task available, if its kind still lacks tasks; of task_count a row of each kind.
-- Without jit: see feed_page.
-- +goose StatementBegin
create function taskledger_internal.unbegun_kinds(older_than interval, max_aged bigint)
returns table (kind text, waiting bigint, late bigint, oldest_at timestamptz)
language plpgsql stable set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
#variable_conflict use_column
declare
  page_size constant integer := 1000;
  cutoff constant timestamptz := clock_timestamp() - older_than;
  kinds text[];
  totals bigint[];
  missing bigint[];
  before bigint := 9223372036854775807;
  events bigint;
  is_over boolean;
begin
  select array_agg(k.kind order by k.kind), array_agg(c.tasks order by k.kind)
    into kinds, totals
    from (select distinct w.kind from taskledger_internal.worker_kinds w) k
   cross join lateral (
     select t.tasks from taskledger_internal.task_totals t
      where t.kind = k.kind and t.state = 'available'
      order by t.n desc
      limit 1) c
   where c.tasks > 0 and not exists (select from taskledger.paused_kinds p where p.kind = k.kind);
  missing := totals;
  while exists (select from unnest(missing) m(n) where m.n > 0) loop
    with page as materialized (
      select e.position, e.recorded_at, e.kind, e.biz_id, e.version, e.type
        from taskledger.event e
       where e.position < before
       order by e.position desc
       limit page_size
    ), met as (
      select p.kind, count(*) as n
        from page p
       cross join lateral (
         select t.state, t.version from taskledger.tasks t where t.kind = p.kind and t.biz_id = p.biz_id limit 1) t
       where p.type in ('enqueued', 'released', 'interrupted') and p.recorded_at >= cutoff
         and p.kind in (select m.kind from unnest(kinds, missing) m(kind, n) where m.n > 0)
         and t.state = 'available' and t.version = p.version
       group by p.kind
    )
    select count(*), min(p.position), coalesce(bool_or(p.recorded_at < cutoff), true),
           (select array_agg(m.n - coalesce(f.n, 0) order by m.i)
              from unnest(kinds, missing) with ordinality m(kind, n, i)
              left join met f on f.kind = m.kind)
      into events, before, is_over, missing
      from page p;
    exit when is_over or events < page_size;
  end loop;
  return query
  select m.kind, m.total, m.n,
         (select case when count(*) <= max_aged then min(t.updated_at) filter (where t.state = 'available') end
            from (select s.state, s.updated_at
                    from taskledger.tasks s
                   where s.kind = m.kind
                   order by s.biz_id
                   limit max_aged + 1) t)
    from unnest(kinds, totals, missing) m(kind, total, n)
   where m.n > 0;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.unbegun_kinds(interval, bigint) is
  'Returns the kinds with live workers that are not paused and have tasks that became available before '
  'older_than ago: the available tasks as the projector has counted them, how many of these are so old, and when the '
  'oldest became available, null for a kind with more than max_aged tasks in all.';
