-- Attempts in SQL, for workers in every language: the same events and the same fence as in package workers.
-- Owner: package ledger. The functions write event and timer; a worker's lease is in 00008_lease.sql.
--
-- All functions but lock_waiting and lock_in_turn run with their caller's rights, so that its role's policies apply.
--
-- SQLSTATE TL001: the attempt has ended. TL002: the worker's lease is missing. TL003: the kind is paused. TL004: the
-- task's deadline has passed. TL008: see 00021_start_limit.sql; claim and claim_next return no row instead.

-- +goose Up

-- Like ledger/sql/append.sql, with the schema's transitions. The xid is drawn before the position and before the clock
-- is read. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.append_event(kind text, biz_id text, expected integer, type taskledger.event_type,
                                                 actor text, data text, after_us bigint default null,
                                                 at timestamptz default null, priority integer default null)
returns integer
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  appended integer;
  is_ordered boolean;
begin
  with tx as materialized (
    select pg_current_xact_id() as xid,
           coalesce((select l.id from taskledger.logins l where l.name = session_user limit 1),
                    taskledger_internal.login_id()) as login_id
  ), due as materialized (
    select tx.xid, tx.login_id, taskledger_internal.due_at(append_event.after_us, append_event.at) as at from tx
  ), added as (
    insert into taskledger.event (version, attempt, shard, type, login_id, priority, partition, kind, biz_id,
                                  order_key, actor, data)
    select e.version + 1, e.attempt + taskledger_internal.begins_attempt(append_event.type, e.type)::integer, e.shard,
           taskledger_internal.type_in_line(append_event.type, e.type, e.order_key), due.login_id,
           coalesce(append_event.priority, e.priority), e.partition, e.kind, e.biz_id, e.order_key,
           append_event.actor,
           taskledger_internal.with_moment(append_event.data,
             case append_event.type when 'failed' then 'retry_at' else 'run_at' end, due.at)::json
      from due
     cross join lateral (
       select h.kind, h.biz_id, h.version, h.attempt, h.shard, h.type, h.priority, h.partition, h.order_key
         from taskledger.event h
        where h.kind = append_event.kind and h.biz_id = append_event.biz_id and h.version >= append_event.expected
        order by h.version desc
        limit 1) e
     where e.version = append_event.expected and taskledger_internal.may_follow(append_event.type, e.type)
       and (e.version > 1 or taskledger_internal.archived_version(e.kind, e.biz_id) is null)
       and (append_event.type <> 'released'
            or e.type not in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded')
            or taskledger_internal.still_ends(e.kind, e.biz_id, e.version, true))
        on conflict (kind, biz_id, version) do nothing
    returning kind, biz_id, version, order_key
  ), timed as (
    insert into taskledger.timer (due_at, kind, biz_id, version, reason)
    select due.at, a.kind, a.biz_id, a.version, case append_event.type when 'failed' then 'retry' else 'due' end
      from added a cross join due
     where due.at is not null
  )
  select a.version, a.order_key is not null into appended, is_ordered from added a;
  if append_event.type not in ('succeeded', 'failed', 'interrupted', 'snoozed') then
    perform taskledger_internal.commit_durably();
  end if;
  if taskledger_internal.is_awaited() or is_ordered
      or append_event.type not in ('started', 'progressed') -- a permit is free: others may wait for it
     and exists (select from taskledger_internal.limited_kinds l where l.kind = append_event.kind) then
    perform taskledger_internal.wake();
  end if;
  return appended;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.append_event(text, text, integer, taskledger.event_type, text, text, bigint,
                                                     timestamptz, integer) is
  'Appends an event after version expected and returns its version; null if the task has moved on. It is '
  'released after after_us microseconds or at a time, which is stored in data and in the timer. A null priority '
  'keeps the task''s.';

-- A statement cannot skip a key that another transaction is inserting: its row is not visible yet, and waiting for it
-- fails the whole statement. So each event is appended alone and rolled back; it fails after 1 ms if its key is locked.
-- An event that cannot be appended for another reason is not returned. No lock is held when the next one is tried.
-- +goose StatementBegin
create function taskledger_internal.locked_events(kinds text[], biz_ids text[], expected integer[], types text[],
                                                  actors text[])
returns setof bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '1ms' as $$
declare
  r record;
begin
  for r in
    select * from unnest(kinds, biz_ids, expected, types, actors)
             with ordinality as e(kind, biz_id, expected, type, actor, n)
  loop
    begin
      perform taskledger_internal.append_event(r.kind, r.biz_id, r.expected, r.type::taskledger.event_type,
                                               coalesce(nullif(r.actor, ''), session_user), null);
      raise sqlstate 'TL007';
    exception
      when lock_not_available then
        return next r.n;
      when others then
        null;
    end;
  end loop;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.locked_events(text[], text[], integer[], text[], text[]) is
  'Returns the numbers of the events that cannot be appended after versions expected now, because other '
  'transactions have their keys locked. Appends nothing.';

-- Prepares a text for an event, like package internal/printable. (PostgreSQL's text cannot contain NUL.)
-- +goose StatementBegin
create function taskledger_internal.shortened(text text, max_bytes integer) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  bytes constant bytea := convert_to(text, 'UTF8');
  length integer := max_bytes;
begin
  if octet_length(bytes) <= max_bytes then
    return text;
  end if;
  while get_byte(bytes, length) & 192 = 128 loop -- inside of a character
    length := length - 1;
  end loop;
  return convert_from(substring(bytes for length), 'UTF8')
    || case when length < max_bytes then chr(65533) else '' end || chr(8230);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.shortened(text, integer) is
  'Returns a text, truncated to a number of bytes with an ellipsis if it is longer.';

-- +goose StatementBegin
create function taskledger_internal.error_text(data json) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  return coalesce(nullif(data #>> '{error,message}', ''), data ->> 'reason', '');
exception when untranslatable_character or invalid_text_representation then
  return ''; -- an escape that PostgreSQL cannot decode
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.error_text(json) is
  'Returns the message of a failed or buried event, as ledger.Event.ErrorText does in Go.';

-- The same calculation as ledger.RetryPolicy in Go, in nanoseconds and double precision.
-- +goose StatementBegin
create function taskledger_internal.retry_delay(policy json, failures integer, random double precision) returns bigint
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  most constant double precision := 366 * 24 * 3600 * 1e9;
  rungs constant integer :=
    case when json_typeof(policy -> 'ladder') = 'array' then json_array_length(policy -> 'ladder') else 0 end;
  longest constant double precision := coalesce(
    1e3 * round((policy ->> 'max')::double precision * 1e6), case when rungs > 0 then most else 24 * 3600 * 1e9 end);
  jitter constant double precision := coalesce(
    (policy ->> 'jitter')::double precision, case when rungs > 0 then 0.1 else 0.5 end);
  delay double precision;
begin
  if rungs > 0 then
    delay := 1e3 * round((policy -> 'ladder' ->> (least(failures, rungs) - 1))::double precision * 1e6);
  else
    delay := 1e3 * round(coalesce((policy ->> 'unit')::double precision, 1) * 1e6)
           * power(failures::double precision, 4);
  end if;
  return (trunc(least(delay, longest, most) * (1 - jitter * random))::bigint + 999) / 1000;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.retry_delay(json, integer, double precision) is
  'Returns the delay after the n-th failure by a retry policy, in microseconds, rounded up. '
  'random is a random number between 0 and 1.';

-- +goose StatementBegin
create function taskledger_internal.retry_limit(policy json) returns integer
language sql immutable parallel safe
return coalesce((policy ->> 'attempts')::double precision::integer,
  case when json_typeof(policy -> 'ladder') = 'array' then nullif(json_array_length(policy -> 'ladder'), 0) + 1 end,
  25);
-- +goose StatementEnd

comment on function taskledger_internal.retry_limit(json) is
  'Returns the number of failures after which a task with this retry policy is dead.';

-- Indexes: primary key for the first 64 events, event_long for all others.
-- +goose StatementBegin
create function taskledger_internal.newest_of(kind text, biz_id text, types taskledger.event_type[]) returns integer
language sql stable
begin atomic
  select coalesce(max(v.version), 0)
    from (
      select l.version
        from unnest(newest_of.types) as t(type)
       cross join lateral (
         select e.version
           from taskledger.event e
          where e.kind = newest_of.kind and e.biz_id = newest_of.biz_id and e.type = t.type and e.version > 64
          order by e.version desc
          limit 1) l
       union all
      (select f.version
         from taskledger.event f
        where f.kind = newest_of.kind and f.biz_id = newest_of.biz_id and f.type = any (newest_of.types)
          and f.version <= 64
        order by f.version desc
        limit 1)) v;
end;
-- +goose StatementEnd

comment on function taskledger_internal.newest_of(text, text, taskledger.event_type[]) is
  'Returns the version of the newest event of a task that has one of these types, or 0.';

-- Indexes: primary key for the first 64 events, event_long for the others.
-- +goose StatementBegin
create function taskledger_internal.failures_of(kind text, biz_id text, since integer)
returns table (attempt integer, failed_at timestamptz, message text)
language sql stable rows 5
begin atomic
  select n.attempt, n.recorded_at, taskledger_internal.shortened(taskledger_internal.error_text(n.data), 512)
    from (
      select l.*
        from (
          select e.*
            from taskledger.event e
           where e.kind = failures_of.kind and e.biz_id = failures_of.biz_id and e.type = 'failed'
             and e.version > 64 and e.version > failures_of.since
           order by e.version desc
           limit 100) l
       union all
      select f.*
        from taskledger.event f
       where f.kind = failures_of.kind and f.biz_id = failures_of.biz_id and f.type = 'failed'
         and f.version <= 64 and f.version > failures_of.since
       order by version desc
       limit 100) n
   order by n.version;
end;
-- +goose StatementEnd

comment on function taskledger_internal.failures_of(text, text, integer) is
  'Returns the newest 100 failed attempts of a task after a version, oldest first.';

-- Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.attempt_of(kind text, biz_id text, version integer, out worker text,
                                               out number integer, out data text)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  found record;
  head record;
begin
  select e.actor, e.attempt, e.recorded_at, e.login_id into found
    from taskledger.event e
   where e.kind = attempt_of.kind and e.biz_id = attempt_of.biz_id and e.version = attempt_of.version
     and e.type in ('started', 'progressed');
  select h.version, h.type into head
    from taskledger.event h
   where h.kind = attempt_of.kind and h.biz_id = attempt_of.biz_id
   order by h.version desc limit 1;
  if found.attempt is null then
    perform taskledger_internal.check_kinds(array[attempt_of.kind]); -- another reason to find no event
    raise exception 'taskledger: no attempt at task %/% began with version %', kind, biz_id, version
      using errcode = 'TL001',
            hint = 'roll back, and pass the version that taskledger.claim returned; the task may have been archived';
  end if;
  if head.version <> attempt_of.version then
    raise exception 'taskledger: the attempt at task %/% with version % has ended', kind, biz_id, version
      using errcode = 'TL001',
            hint = 'roll back: another worker has the task, or an operator or a deadline has ended it';
  end if;
  if found.login_id is distinct from (select l.id from taskledger.logins l where l.name = session_user limit 1)
      and row_security_active('taskledger.event') and taskledger_internal.is_anothers_worker(found.actor, kind) then
    raise exception 'taskledger: login % may not end the attempt at task %/% with version %',
        session_user, kind, biz_id, version
      using errcode = 'insufficient_privilege',
            hint = 'its worker ' || quote_literal(found.actor) || ' has another login and is alive';
  end if;
  worker := found.actor;
  number := found.attempt;
  data := '"worker":' || to_json(found.actor)::text || ',"started_at":"'
    || to_char(found.recorded_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '","duration_ms":'
    || greatest(0, round(extract(epoch from clock_timestamp() - found.recorded_at)::numeric * 1000, 3));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.attempt_of(text, text, integer) is
  'Returns the worker of an attempt that runs, its number and the members that the data of its outcome '
  'begins with; raises TL001 if the attempt has ended.';

-- Takes over a task whose worker has lost its lease, by the rules of package workers: the task is buried after five
-- lost workers in a row, or if its attempt must not be repeated.
-- +goose StatementBegin
create function taskledger_internal.take_over(kind text, biz_id text, version integer, worker text) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  lost integer;
  reason text;
begin
  select h.attempt - o.attempt into lost -- the attempts that began since the task was last available or postponed
    from taskledger.event h, taskledger.event o
   where h.kind = take_over.kind and h.biz_id = take_over.biz_id and h.version = take_over.version
     and o.kind = take_over.kind and o.biz_id = take_over.biz_id
     and o.version = taskledger_internal.newest_of(take_over.kind, take_over.biz_id,
           '{enqueued,scheduled,released,failed,interrupted,snoozed}');
  if (select s.data::text from taskledger.event s
       where s.kind = take_over.kind and s.biz_id = take_over.biz_id
         and s.version = taskledger_internal.newest_of(take_over.kind, take_over.biz_id, '{started}'))
      = '{"guarantee":"at most once"}' then
    reason := '{"reason":"unknown outcome","worker":' || to_json(worker) || '}';
  elsif lost >= 5 then
    reason := '{"reason":"its workers were lost one after the other","lost":' || lost || ',"worker":'
      || to_json(worker) || '}';
  else
    return true;
  end if;
  perform taskledger_internal.append_event(kind, biz_id, version, 'buried', worker, reason);
  return false;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.take_over(text, text, integer, text) is
  'Returns whether a task whose worker is lost may run again; buries it if not.';

-- Producers can write any JSON. As in package ledger, a time that is not in RFC 3339 is ignored.
-- +goose StatementBegin
create function taskledger_internal.deadline_of(meta json) returns timestamptz
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  if meta is null or strpos(meta::text, '_by') = 0 then
    return null;
  end if;
  begin
    return substring(case when json_typeof(meta -> 'finish_by') = 'string' then meta ->> 'finish_by' end from
      '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.][0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})$')::timestamptz;
  exception
    when data_exception then
      return null;
  end;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.deadline_of(json) is
  'Returns the deadline in the meta of a task; null if there is none or it is not a time.';

-- +goose StatementBegin
create function taskledger.claim(kind text, biz_id text, worker text, resume boolean default false)
returns table (version integer, attempt integer, args json, meta json, finish_by timestamptz)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  head record;
  first record;
  deadline timestamptz;
  appended integer;
begin
  perform taskledger_internal.check_key(claim.kind, claim.biz_id);
  perform taskledger_internal.check_lease(claim.worker, claim.kind);
  if exists (select from taskledger.paused_kinds p where p.kind = claim.kind) then
    perform taskledger_internal.check_kinds(array[claim.kind]);
    raise exception 'taskledger: kind % is paused', claim.kind
      using errcode = 'TL003', hint = 'try again later';
  end if;
  if not taskledger_internal.may_claim(claim.worker, claim.kind) then
    return;
  end if;
  select h.version, h.type, h.attempt, h.actor into head
    from taskledger.event h
   where h.kind = claim.kind and h.biz_id = claim.biz_id
   order by h.version desc limit 1;
  if head.type is null then
    perform taskledger_internal.check_kinds(array[claim.kind]);
  end if;
  if head.type is null or head.type not in ('enqueued', 'released', 'interrupted', 'started', 'progressed') then
    return;
  end if;
  if head.version = 1 and taskledger_internal.archived_version(claim.kind, claim.biz_id) is not null then
    perform taskledger_internal.discard_archived(array[claim.kind], array[claim.biz_id], claim.worker);
    return;
  end if;
  if head.type in ('started', 'progressed') and not (resume and head.actor = claim.worker)
      and exists (select from taskledger_internal.worker_alive_ms(head.actor, claim.kind) w where w.alive_ms > 0) then
    return;
  end if;
  select f.data, f.meta into first
    from taskledger.event f
   where f.kind = claim.kind and f.biz_id = claim.biz_id
     and f.version = taskledger_internal.args_version(claim.kind, claim.biz_id);
  deadline := taskledger_internal.deadline_of(first.meta);
  if deadline <= clock_timestamp() then -- the scheduler ends the task, unless it is running
    if head.type in ('started', 'progressed') then
      perform taskledger_internal.append_event(claim.kind, claim.biz_id, head.version, 'interrupted', claim.worker,
                                               '{"reason":"finish_by"}');
    end if;
    return;
  end if;
  if head.type in ('started', 'progressed')
      and not taskledger_internal.take_over(claim.kind, claim.biz_id, head.version, claim.worker) then
    return;
  end if;
  if not taskledger_internal.is_limited(claim.kind) then
    appended := taskledger_internal.append_event(claim.kind, claim.biz_id, head.version, 'started', claim.worker, null);
  else
    begin
      appended := taskledger_internal.append_event(claim.kind, claim.biz_id, head.version, 'started', claim.worker,
                                                   null);
    exception when sqlstate 'TL008' then -- a limit allows no start
      return;
    end;
  end if;
  if appended is not null then
    return query select appended, head.attempt + 1, first.data, first.meta, deadline;
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger.claim(text, text, text, boolean) is
  'Starts an attempt at a task: appends started, and returns its version (for finish, fail and snooze), the '
  'attempt''s number, the task''s args and meta, and its deadline. Returns no row if the task is not available. If '
  'live workers in Go handle the kind, it also returns no row for some seconds after the first heartbeat, until '
  'they record each start. With resume, an attempt that this worker has started counts as lost, and the next one '
  'starts. Returns no row if a limit of the kind allows no further start now. The worker needs a lease: '
  'see taskledger.heartbeat. Raises TL002 without a lease, TL003 if the kind is paused.';

-- Reads the list of unfinished tasks or, if listed is null, the events after the list's place. The caller has already
-- read the events that were visible at the moment at; they are left out, unless there is no such moment or the list has
-- passed it.
--
-- Runs with its owner's rights, for two reasons. A worker may not read the projection, which contains errors, and a
-- limited worker may not read other kinds' events. And only the owner may lock rows of events, so a locked row belongs
-- to a worker of the kind, while any login could hold an advisory lock. Each worker is looked up once. Indexes:
-- task_next, primary keys, and the indexes of feed_page.
-- +goose StatementBegin
create function taskledger_internal.lock_waiting(kind text, listed_priority integer, listed_partition text,
                                                 listed bigint, at timestamptz, after bigint, page integer,
                                                 how_many integer, out biz_ids text[], out entries integer,
                                                 out last_priority integer, out last_partition text, out last bigint,
                                                 out is_end boolean, out newest timestamptz)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  waking constant taskledger.event_type[] := '{enqueued,released,interrupted}';
  place constant json := (select p.place -> 'seen' from taskledger_internal.lingering_place p);
  seen pg_snapshot := coalesce(place ->> 'snapshot', '3:3:');
  seen_top bigint := coalesce(place ->> 'top', '0');
  seen_bound xid8 := coalesce(place ->> 'bound', '3');
  priorities integer[];
  partitions text[];
  positions bigint[];
  found_ids text[];
  read record;
begin
  perform taskledger_internal.check_kinds(array[lock_waiting.kind], true);
  if listed is not null then
    select array_agg(l.priority order by l.priority, l.partition, l.position),
           array_agg(l.partition order by l.priority, l.partition, l.position),
           array_agg(l.position order by l.priority, l.partition, l.position),
           array_agg(l.biz_id order by l.priority, l.partition, l.position), count(*)
      into priorities, partitions, positions, found_ids, entries
      from (
        select t.priority::integer as priority, t.partition, t.position, t.biz_id
          from taskledger_internal.lingering_tasks t
         where t.kind = lock_waiting.kind
           and (t.priority, t.partition, t.position) > (listed_priority, listed_partition, listed)
         order by t.priority, t.partition, t.position
         limit page) l;
    last_priority := priorities[entries];
    last_partition := partitions[entries];
    last := positions[entries];
  else
    select m.snapshot, m.top, m.bound into read from taskledger.moments m where m.at = lock_waiting.at;
    if read.top > seen_top then
      seen := read.snapshot;
      seen_top := read.top;
      seen_bound := read.bound;
    end if;
    newest := (select m.at from taskledger.moments m order by m.at desc limit 1);
    select array_agg(e.position) filter (where e.kind = lock_waiting.kind and e.type = any (waking)),
           array_agg(e.biz_id) filter (where e.kind = lock_waiting.kind and e.type = any (waking)),
           count(*), max(e.position)
      into positions, found_ids, entries, last
      from taskledger_internal.feed_page(seen, seen_top, seen_bound, pg_current_snapshot(), 9223372036854775807,
                                         lock_waiting.after, page) e;
  end if;
  is_end := entries < page;
  with head as materialized (
    select t.priority, t.partition, t.position, t.biz_id, h.type, h.actor
      from unnest(priorities, partitions, positions, found_ids) t(priority, partition, position, biz_id)
     cross join lateral (
       select e.type, e.actor
         from taskledger.event e
        where e.kind = lock_waiting.kind and e.biz_id = t.biz_id
        order by e.version desc
        limit 1) h
  ), lost as materialized (
    select r.actor
      from (select distinct h.actor from head h where h.type in ('started', 'progressed')) r
     where not exists (
       select from taskledger_internal.worker_alive_ms(r.actor, lock_waiting.kind) w where w.alive_ms > 0)
  )
  select array_agg(h.priority order by h.priority, h.partition, h.position),
         array_agg(h.partition order by h.priority, h.partition, h.position),
         array_agg(h.position order by h.priority, h.partition, h.position),
         array_agg(h.biz_id order by h.priority, h.partition, h.position)
    into priorities, partitions, positions, found_ids
    from head h
   where h.type = any (waking)
      or h.type in ('started', 'progressed') and h.actor in (select l.actor from lost l);
  for i in 1 .. coalesce(cardinality(found_ids), 0) loop
    perform from taskledger.event e
      where e.kind = lock_waiting.kind and e.biz_id = found_ids[i] and e.version = 1
        for update skip locked;
    if found then
      biz_ids := biz_ids || found_ids[i];
    end if;
    if cardinality(biz_ids) = how_many then
      last_priority := priorities[i];
      last_partition := partitions[i];
      last := positions[i];
      is_end := false;
      exit;
    end if;
  end loop;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.lock_waiting(text, integer, text, bigint, timestamptz, bigint, integer,
                                                     integer) is
  'Reads the next entries of a kind in the list of unfinished tasks after a priority, a partition and a position, or '
  'the next events of all kinds after a moment and a position, at most page of them. Locks the first how_many tasks '
  'among them that may be claimed, against other calls until the transaction ends. Returns these in the order in '
  'which they begin, how many entries there were, priority, partition and position of the last, whether there are no '
  'more, and the time of the newest moment.';

-- Reads the oldest tasks of the next priority, in turns of its partitions, ordered by name, after the partition turn. A
-- partition's weight is the mean number of its tasks in a turn. priority is null if the list contains no further
-- priority, or no task with a partition: then the list is ordered by position. It reads a few more partitions and
-- entries than how_many: some tasks have begun since they were projected, and some are running and may have lost their
-- workers. Rights, locks and indexes: see lock_waiting.
--
-- The k-th task of a partition with weight w comes in round ceil((k - u) / w), with a random u below 1. If a call ends
-- with a partition whose weight is above 1, the next call begins with it again with probability 1 - 1/w. So only its
-- name must be remembered.
-- +goose StatementBegin
create function taskledger_internal.lock_in_turn(kind text, above integer, turn text, how_many integer,
                                                 out priority integer, out biz_ids text[], out partitions text[],
                                                 out turns text[])
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
#variable_conflict use_column
declare
  candidate record;
begin
  perform taskledger_internal.check_kinds(array[lock_in_turn.kind], true);
  if not exists (
       select from generate_series(1, 4) p(priority)
        cross join lateral (
          select from taskledger_internal.lingering_tasks t
           where t.kind = lock_in_turn.kind and t.priority = p.priority and t.partition > ''
           limit 1) t) then
    return;
  end if;
  select t.priority::integer into priority
    from taskledger_internal.lingering_tasks t
   where t.kind = lock_in_turn.kind and t.priority > lock_in_turn.above
   order by t.priority
   limit 1;
  for candidate in
    with recursive ahead as (
      (select t.partition, 1 as i
         from taskledger_internal.lingering_tasks t
        where t.kind = lock_in_turn.kind and t.priority = lock_in_turn.priority and t.partition > lock_in_turn.turn
        order by t.partition
        limit 1)
      union all
      select n.partition, a.i + 1
        from ahead a
       cross join lateral (
         select t.partition
           from taskledger_internal.lingering_tasks t
          where t.kind = lock_in_turn.kind and t.priority = lock_in_turn.priority and t.partition > a.partition
          order by t.partition
          limit 1) n
       where a.i < lock_in_turn.how_many + 8
    ), around as (
      (select t.partition, 1 as i
         from taskledger_internal.lingering_tasks t
        where t.kind = lock_in_turn.kind and t.priority = lock_in_turn.priority and t.partition <= lock_in_turn.turn
        order by t.partition
        limit 1)
      union all
      select n.partition, a.i + 1
        from around a
       cross join lateral (
         select t.partition
           from taskledger_internal.lingering_tasks t
          where t.kind = lock_in_turn.kind and t.priority = lock_in_turn.priority and t.partition > a.partition
            and t.partition <= lock_in_turn.turn
          order by t.partition
          limit 1) n
       where a.i < lock_in_turn.how_many + 8
    ), name as materialized (
      select n.partition, row_number() over (order by n.lap, n.i) as i, count(*) over () as names,
             lag(n.partition, 1, lock_in_turn.turn) over (order by n.lap, n.i) as before,
             coalesce(w.weight::double precision, 1) as weight, random() as u
        from (select 1 as lap, a.i, a.partition from ahead a union all select 2, a.i, a.partition from around a) n
        left join taskledger_internal.partition_weights w on w.partition = n.partition
       order by n.lap, n.i
       limit lock_in_turn.how_many + 8
    ), head as materialized (
      select n.i, n.partition, n.before, n.weight, n.u, l.position, l.biz_id, h.type, h.actor
        from name n
       cross join lateral (
        (select t.position, t.biz_id
           from taskledger_internal.lingering_tasks t
          where t.kind = lock_in_turn.kind and t.priority = lock_in_turn.priority and t.partition = n.partition
            and t.state = 'available'
          order by t.position
          limit least(lock_in_turn.how_many::double precision,
                      ceil(lock_in_turn.how_many / n.names * greatest(n.weight, 1))) + 8)
         union all
        (select t.position, t.biz_id
           from taskledger_internal.lingering_tasks t
          where t.kind = lock_in_turn.kind and t.priority = lock_in_turn.priority and t.partition = n.partition
            and t.state = 'running'
          order by t.position
          limit 24)) l
       cross join lateral (
         select e.type, e.actor
           from taskledger.event e
          where e.kind = lock_in_turn.kind and e.biz_id = l.biz_id
          order by e.version desc
          limit 1) h
    ), lost as materialized (
      select r.actor
        from (select distinct h.actor from head h where h.type in ('started', 'progressed')) r
       where not exists (
         select from taskledger_internal.worker_alive_ms(r.actor, lock_in_turn.kind) w where w.alive_ms > 0)
    )
    select h.biz_id, h.partition,
           case when random() * h.weight < h.weight - 1 then h.before else h.partition end as turn
      from (
        select h.*, row_number() over (partition by h.i order by h.position) as k
          from head h
         where h.type in ('enqueued', 'released', 'interrupted')
            or h.type in ('started', 'progressed') and h.actor in (select l.actor from lost l)) h
     order by ceil((h.k - h.u) / h.weight), h.i, h.k
  loop
    perform from taskledger.event e
      where e.kind = lock_in_turn.kind and e.biz_id = candidate.biz_id and e.version = 1
        for update skip locked;
    if found then
      biz_ids := biz_ids || candidate.biz_id;
      partitions := partitions || candidate.partition;
      turns := turns || candidate.turn;
    end if;
    exit when cardinality(biz_ids) = lock_in_turn.how_many;
  end loop;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.lock_in_turn(text, integer, text, integer) is
  'Locks at most how_many tasks of the next priority after one in the list of unfinished tasks that may be claimed, '
  'of each partition in turn as many as its weight, beginning after a partition. Returns their priority, and for '
  'each task the partition after which the next call begins if the task is the last to be claimed. The priority '
  'is null at the end of the list, or if no task of the list has a partition.';

-- Claims tasks of the list first, then of the events after the list's place. If listed tasks have partitions, a call
-- first claims some of each in turn (lock_in_turn), and continues as below if it finds too few. With a limit per value,
-- each call does so, and tries more partitions than it may claim, because some are full. A call skips at most about
-- 5,000 entries of the list, and of the events, that it cannot claim; the next call continues there.
--
-- The worker's place in the events is a place of the feed, so a call costs only the new events, however far the list is
-- behind. The worker has read every event that was visible at the moment at, and the others up to the position after.
-- At the end of a pass, at becomes the moment next, which was the newest when the pass began. Events that commit late
-- are not visible in it, and are read in the next pass. The place is stored only when a call has read many events, or
-- ends a pass of several calls: most calls read a few events again, and write nothing.
-- +goose StatementBegin
create function taskledger.claim_next(kind text, worker text, how_many integer default 1)
returns table (biz_id text, version integer, attempt integer, args json, meta json, finish_by timestamptz)
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  most constant integer := 5000;
  few constant integer := 256;
  before constant json := taskledger_internal.poll_place(claim_next.worker, claim_next.kind);
  listed bigint := coalesce(before ->> 'listed', '0');
  listed_priority integer := coalesce(before ->> 'priority', '0');
  listed_partition text := coalesce(before ->> 'partition', '');
  turn text := coalesce(before ->> 'turn', '');
  turns record;
  above integer; -- the priority whose partitions had their turn
  at timestamptz := before ->> 'at';
  after bigint := coalesce(before ->> 'after', '0');
  later timestamptz := before ->> 'next';
  is_listed boolean := true;
  page integer := how_many;
  stepped integer := 0;
  claimed integer := 0;
  tasks record;
  found record;
  is_limited boolean;
  had integer;
  refusals integer := 0;
  most_refusals integer := 1; -- of one call: each reads slots; a limit per value may allow other tasks
  lost text;
begin
  if how_many is null or how_many not between 1 and 100 then
    raise exception 'taskledger: invalid how_many %: must be between 1 and 100', coalesce(how_many::text, 'null')
      using errcode = 'invalid_parameter_value';
  end if;
  perform taskledger_internal.check_kinds(array[claim_next.kind]);
  perform taskledger_internal.check_lease(claim_next.worker, claim_next.kind);
  if exists (select from taskledger.paused_kinds p where p.kind = claim_next.kind)
      or not taskledger_internal.may_claim(claim_next.worker, claim_next.kind) then
    return;
  end if;
  is_limited := taskledger_internal.is_limited(claim_next.kind);
  if is_limited then
    most_refusals := case when exists (
      select from taskledger_internal.limited_kinds k join taskledger.start_limits l on l.name = k.name
       where k.kind = claim_next.kind and l.per is not null) then 50 else 1 end;
  end if;
  above := case when listed = 0 or most_refusals > 1 then 0 end;
  while above is not null and claimed < how_many and refusals < most_refusals loop
    turns := taskledger_internal.lock_in_turn(claim_next.kind, above, turn,
                                              how_many - claimed + case when most_refusals > 1 then 16 else 0 end);
    exit when turns.priority is null;
    above := turns.priority;
    for i in 1 .. coalesce(cardinality(turns.biz_ids), 0) loop
      exit when claimed >= how_many;
      had := claimed;
      for found in select c.* from taskledger.claim(claim_next.kind, turns.biz_ids[i], claim_next.worker) c loop
        return query select turns.biz_ids[i], found.version, found.attempt, found.args, found.meta, found.finish_by;
        claimed := claimed + 1;
        turn := turns.turns[i];
      end loop;
      if is_limited and claimed = had then
        turn := turns.partitions[i];
        refusals := refusals + 1;
        exit when refusals = most_refusals;
      end if;
    end loop;
  end loop;
  while claimed < how_many and refusals < most_refusals loop
    tasks := taskledger_internal.lock_waiting(claim_next.kind, listed_priority, listed_partition,
                                              case when is_listed then listed end, at, after, page,
                                              how_many - claimed);
    for i in 1 .. coalesce(cardinality(tasks.biz_ids), 0) loop
      had := claimed;
      for found in select c.* from taskledger.claim(claim_next.kind, tasks.biz_ids[i], claim_next.worker) c loop
        return query select tasks.biz_ids[i], found.version, found.attempt, found.args, found.meta, found.finish_by;
        claimed := claimed + 1;
      end loop;
      if is_limited and claimed = had then
        refusals := refusals + 1;
        exit when refusals = most_refusals;
      end if;
    end loop;
    if refusals = 1 and most_refusals = 1 then -- the same task comes first next time
      exit;
    end if;
    stepped := stepped + tasks.entries;
    if is_listed then
      listed := case when claimed < how_many and not tasks.is_end then tasks.last else 0 end;
      listed_priority := case when listed > 0 then tasks.last_priority else 0 end;
      listed_partition := case when listed > 0 then tasks.last_partition else '' end;
      exit when claimed >= how_many or refusals = most_refusals;
      is_listed := not tasks.is_end and stepped < most;
      page := least(4 * page, most);
      if not is_listed then
        page := few;
        stepped := 0;
      end if;
    else
      later := coalesce(later, tasks.newest);
      if tasks.is_end then
        at := later;
        after := 0;
        later := null;
        exit;
      end if;
      after := tasks.last;
      exit when claimed >= how_many or refusals = most_refusals or stepped >= most;
      page := least(4 * page, most);
    end if;
  end loop;
  if refusals > 0 and claimed < how_many then -- tasks that hold a permit can start
    for lost in
      select h.biz_id from taskledger_internal.lost_holders(claim_next.kind) h(biz_id) limit how_many - claimed
    loop
      return query select lost, c.* from taskledger.claim(claim_next.kind, lost, claim_next.worker) c;
    end loop;
  end if;
  if not is_listed and (stepped >= few or before ->> 'next' is not null and later is null)
      or listed <> coalesce(before ->> 'listed', '0')::bigint
      or listed_priority <> coalesce(before ->> 'priority', '0')::integer
      or listed_partition <> coalesce(before ->> 'partition', '') or turn <> coalesce(before ->> 'turn', '') then
    perform taskledger_internal.set_poll_place(claim_next.worker, claim_next.kind,
      json_build_object('listed', listed, 'priority', listed_priority, 'partition', listed_partition, 'turn', turn,
                        'at', at, 'after', after, 'next', later));
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger.claim_next(text, text, integer) is
  'Claims at most how_many waiting tasks of a kind, of the highest priority first and in the order in which they '
  'became available, unless other workers take them first. The partitions of a priority take turns, of one task '
  'or as many as their weight. Tasks that became available within the last seconds may come after all others, '
  'whatever their priority and partition. Its cost does not grow with finished tasks, tasks that wait for a time, '
  'or other kinds'' tasks. Returns no row if the kind is paused, or if claim would return none. Raises TL002 '
  'without a lease.';

-- +goose StatementBegin
create function taskledger.finish(kind text, biz_id text, version integer, result json default null) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  own constant record := taskledger_internal.attempt_of(kind, biz_id, version);
begin
  if (select taskledger_internal.deadline_of(f.meta) <= clock_timestamp()
        from taskledger.event f
       where f.kind = finish.kind and f.biz_id = finish.biz_id
         and f.version = taskledger_internal.args_version(finish.kind, finish.biz_id)) then
    raise exception 'taskledger: the deadline of task %/% has passed', kind, biz_id
      using errcode = 'TL004', hint = 'roll back, and call taskledger.fail';
  end if;
  if octet_length(result::text) > 262144 then -- workers.MaxResultBytes
    raise exception 'taskledger: invalid result: must have at most 262144 bytes, got %', octet_length(result::text)
      using errcode = 'invalid_parameter_value', hint = 'store a reference to a larger result';
  end if;
  perform taskledger_internal.check_nesting('result', result::text);
  if taskledger_internal.append_event(kind, biz_id, version, 'succeeded', own.worker,
       '{' || own.data || coalesce(',"result":' || result::text, '') || '}') is null then
    perform taskledger_internal.attempt_of(kind, biz_id, version); -- raises: another event has come first
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger.finish(text, text, integer, json) is
  'Records that an attempt has succeeded, in the transaction of its effect: both commit, or neither does. version '
  'is from taskledger.claim. Raises TL001 if the attempt has ended meanwhile, TL004 if the task''s deadline has '
  'passed.';

-- +goose StatementBegin
create function taskledger.fail(kind text, biz_id text, version integer, error text, error_type text default '',
                                retry_in interval default null, permanent boolean default false,
                                retry json default null) returns taskledger.task_state
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  own constant record := taskledger_internal.attempt_of(kind, biz_id, version);
  described constant json := json_build_object(
    'message', taskledger_internal.shortened(coalesce(error, ''), 4096),
    'type', taskledger_internal.shortened(coalesce(error_type, ''), 512));
  ended constant integer := taskledger_internal.newest_of(
    kind, biz_id, '{succeeded,buried,cancelled,expired,discarded}');
  policy json;
  failures integer;
  reason text;
  appended integer;
  delay_us bigint;
begin
  perform taskledger_internal.check_times(null, retry_in, null, null);
  if json_typeof(retry) <> 'null' then
    begin
      perform taskledger_internal.check_retry(retry, 'retry');
    exception when untranslatable_character or invalid_text_representation or numeric_value_out_of_range then
      raise exception 'taskledger: invalid retry: %', sqlerrm using errcode = 'invalid_parameter_value';
    end;
  end if;
  policy := taskledger_internal.policy_of(kind, biz_id, retry);
  failures := 1 + (
    select count(*) from taskledger.event e
     where e.kind = fail.kind and e.biz_id = fail.biz_id and e.type = 'failed' and e.version > ended
       and e.version > 64) + (
    select count(*) from taskledger.event e
     where e.kind = fail.kind and e.biz_id = fail.biz_id and e.type = 'failed' and e.version > ended
       and e.version <= 64);
  delay_us := coalesce((extract(epoch from retry_in) * 1e6)::bigint,
                       taskledger_internal.retry_delay(policy, failures, random()));
  reason := case when permanent then 'the handler returned a permanent error'
                 when failures >= taskledger_internal.retry_limit(policy) then 'attempts used up' end;
  appended := taskledger_internal.append_event(
    kind, biz_id, version, 'failed', own.worker, '{"error":' || described || ',' || own.data || '}',
    case when reason is null then nullif(delay_us, 0) end);
  if appended is null then
    perform taskledger_internal.attempt_of(kind, biz_id, version); -- raises: another event has come first
  end if;
  if reason is not null then
    perform taskledger_internal.append_event(kind, biz_id, appended, 'buried', own.worker,
      '{"reason":' || to_json(reason) || ',"error":' || described || ',"errors":'
      || (select json_agg(json_build_object('attempt', f.attempt, 'at', f.failed_at at time zone 'UTC' || 'Z',
                                            'message', f.message))
            from taskledger_internal.failures_of(kind, biz_id, ended) f) || ',' || own.data || '}');
    return 'dead';
  elsif delay_us = 0 then
    perform taskledger_internal.append_event(kind, biz_id, appended, 'released', own.worker, '{"reason":"retry"}');
    return 'available';
  end if;
  return 'retrying';
end
$$;
-- +goose StatementEnd

comment on function taskledger.fail(text, text, integer, text, text, interval, boolean, json) is
  'Records that an attempt has failed, after its transaction was rolled back. The task is retried by its own retry '
  'policy, or else by the policy retry, or else by the default; or after retry_in. It is dead if its attempts are '
  'used up or the error is permanent. Returns the task''s state. version is from taskledger.claim. Raises TL001 if '
  'the attempt has ended meanwhile.';

-- +goose StatementBegin
create function taskledger_internal.policy_of(kind text, biz_id text, otherwise json) returns json
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  policy json;
begin
  -- Not in a declaration: its errors are not caught. A producer can have written any JSON.
  policy := (
    select f.meta -> 'retry' from taskledger.event f
     where f.kind = policy_of.kind and f.biz_id = policy_of.biz_id
       and f.version = taskledger_internal.args_version(policy_of.kind, policy_of.biz_id));
  if json_typeof(policy) = 'object' then
    perform taskledger_internal.check_retry(policy);
    return policy;
  end if;
  return case when json_typeof(otherwise) = 'object' then otherwise else '{}' end;
exception when data_exception then
  return case when json_typeof(otherwise) = 'object' then otherwise else '{}' end;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.policy_of(text, text, json) is
  'Returns the retry policy of a task: its own if that is valid, else otherwise, else the default.';

-- A snooze that is due within a second counts such snoozes in a row, in short_in_a_row (see attempt.recorder.snooze).
-- One that is due at once and follows another short one waits by the retry policy.
-- +goose StatementBegin
create function taskledger.snooze(kind text, biz_id text, version integer, run_at timestamptz default null,
                                  run_in interval default null) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  own constant record := taskledger_internal.attempt_of(kind, biz_id, version);
  due timestamptz := coalesce(run_at, clock_timestamp() + run_in);
  short text := '';
  before integer;
begin
  perform taskledger_internal.check_times(run_at, run_in, null, null);
  if num_nonnulls(run_at, run_in) = 0 then
    raise exception 'taskledger: invalid run_at: either run_at or run_in must be set'
      using errcode = 'invalid_parameter_value';
  end if;
  if due < clock_timestamp() + interval '1 second' then
    before := coalesce((
      select taskledger_internal.short_in_a_row(e.data) from taskledger.event e
       where e.kind = snooze.kind and e.biz_id = snooze.biz_id and e.type = 'snoozed' and e.attempt = own.number - 1
         and e.version = taskledger_internal.newest_of(snooze.kind, snooze.biz_id,
               '{snoozed,succeeded,buried,cancelled,expired,discarded}')), 0);
    short := ',"short_in_a_row":' || before + 1;
    if before > 0 and due <= clock_timestamp() then
      due := clock_timestamp() + greatest(interval '1 second', interval '1 microsecond'
        * taskledger_internal.retry_delay(taskledger_internal.policy_of(kind, biz_id, null), before, random()));
    end if;
  end if;
  if taskledger_internal.append_event(kind, biz_id, version, 'snoozed', own.worker, '{' || own.data || short || '}',
       null, due) is null then
    perform taskledger_internal.attempt_of(kind, biz_id, version); -- raises: another event has come first
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger.snooze(text, text, integer, timestamptz, interval) is
  'Ends an attempt without a failure. The task is available again at run_at, or after run_in by the database''s '
  'clock. From the second in a row on, a snooze that is due at once waits by the retry policy. version is from '
  'taskledger.claim. Raises TL001 if the attempt has ended meanwhile.';

-- +goose StatementBegin
create function taskledger_internal.short_in_a_row(data json) returns integer
language sql immutable
return coalesce(substring(data::text from '"short_in_a_row":([0-9]{1,9})')::integer, 0);
-- +goose StatementEnd

comment on function taskledger_internal.short_in_a_row(json) is
  'Returns the number in a row of a snooze of less than a second; 0: it was longer.';

revoke all on all functions in schema taskledger, taskledger_internal from public;
