-- Enqueue in SQL, for every language: the results and the rows of the functions of package ledger in Go.
-- Owner: package ledger. No tables: enqueue and enqueue_many write event, login and timer, and read setting and
-- overload.
--
-- The functions run with the rights of their owner: a producer needs only to be allowed to call them.

-- +goose Up

-- Whether two JSON texts are equal as values: this defines "the same args" for all languages. The order of
-- members, spaces, and the notation of strings and numbers do not matter. The value of an object with a repeated
-- name is undefined: a text with such an object equals only texts that differ from it in spaces and notation alone.
--
-- jsonb refuses the escape \u0000 and halves of surrogate pairs, and numeric large numbers. So both texts are rewritten
-- first: strings and numbers become strings that are equal if and only if the values are equal.
-- +goose StatementBegin
create function taskledger_internal.number_value(number text) returns text
language plpgsql immutable strict parallel safe as $$
declare
  part constant text[] := regexp_match(number, '^(-?)([0-9]+)(?:[.]([0-9]+))?(?:[eE][+]?(-?)0*([0-9]*))?$');
  fraction constant text := coalesce(part[3], '');
  digits constant text := ltrim(part[2] || fraction, '0');
  significant constant text := rtrim(digits, '0');
begin
  if significant = '' then
    return '0';
  elsif length(part[5]) > 15 then
    return number;  -- as it is written, because its exponent is too large to calculate with
  end if;
  return part[1] || significant || 'e'
         || coalesce((part[4] || nullif(part[5], ''))::bigint, 0) - length(fraction)
            + length(digits) - length(significant);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.number_value(text) is
  'Returns a text that is the same for all notations of a JSON number, such as 5e2 for 500.0.';

-- +goose StatementBegin
create function taskledger_internal.string_value(string text) returns text
language sql immutable strict parallel safe as $$
  select coalesce(string_agg(case
           when left(e.m[1], 1) <> E'\\' then e.m[1]
           when e.m[1] ~ E'^\\\\u(0000|[dD][89a-fA-F]..)$' then lower(e.m[1])  -- its only form
           else replace(('"' || e.m[1] || '"')::json #>> '{}', E'\\', E'\\\\')
         end, '' order by e.n), '')
    from regexp_matches(string, E'\\\\u[dD][89abAB]..\\\\u[dD][c-fC-F]..|\\\\u....|\\\\.|[^\\\\]+', 'g')
         with ordinality e(m, n)
$$;
-- +goose StatementEnd

comment on function taskledger_internal.string_value(text) is
  'Returns the characters of a JSON string. The escapes of backslashes, of \u0000 and of halves of surrogate '
  'pairs remain.';

-- +goose StatementBegin
create function taskledger_internal.json_value(document text, out in_order text, out value text, out is_unique boolean)
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
  names bigint;
begin
  select string_agg(case
           when t.token ~ '^-?([1-9][0-9]*)?[1-9]$' then '"#' || t.token || 'e0"'  -- as number_value, but faster
           when t.token ~ '^[-0-9]' then '"#' || taskledger_internal.number_value(t.token) || '"'
           when left(t.token, 1) <> '"' then t.token
           when position(E'\\' in t.token) = 0 then
             '"' || t.mark || substr(t.token, 2) || t.colon
           else to_json(t.mark || taskledger_internal.string_value(substr(t.token, 2, length(t.token) - 2)))::text
                || t.colon
         end, '' order by t.n),
         count(*) filter (where t.mark = '@')
    into in_order, names
    from (
      select rtrim(f.m[1], E': \t\n\r') as token, f.n, case right(f.m[1], 1) when ':' then '@' else '=' end as mark,
             case right(f.m[1], 1) when ':' then ':' else '' end as colon
        from regexp_matches(
               document, E'"(?:[^"\\\\]|\\\\.)*"(?:[ \t\n\r]*:)?|[-+.0-9eE]+|true|false|null|[][{},]', 'g')
             with ordinality f(m, n)) t;
  value := in_order::jsonb::text;
  is_unique := names = regexp_count(value, '[{ ]"@');  -- within strings, a backslash precedes the quotation mark
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.json_value(text) is
  'Returns a JSON text rewritten so that jsonb can hold it, in the order of its members and in jsonb''s '
  'order, and whether all names of each object differ.';

-- +goose StatementBegin
create function taskledger_internal.is_same_json(a text, b text) returns boolean
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
  x record;
  y record;
begin
  if a = b or a is null or b is null then
    return a is not distinct from b;
  end if;
  select v.* into x from taskledger_internal.json_value(a) v;
  select v.* into y from taskledger_internal.json_value(b) v;
  return x.in_order = y.in_order or x.value = y.value and x.is_unique and y.is_unique;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.is_same_json(text, text) is
  'Returns whether two JSON texts are equal as values, or both null. The order of members, spaces, and '
  'the notation of strings and numbers do not matter.';

-- The statement ledger/sql/existing.sql, for roles that may not read events. Index: primary key, twice per key. It is
-- volatile, so that it uses a snapshot of its own, in which the winner of a race is visible: see
-- ledger/sql/enqueue_required.sql. A login gets only the args of its own tasks, to report the difference.
-- +goose StatementBegin
create function taskledger_internal.existing_tasks(kinds text[], biz_ids text[], args text[])
returns table (i bigint, "position" bigint, version integer, type taskledger.event_type, same_args boolean,
               stored_args text)
language plpgsql volatile rows 10 security definer set search_path = pg_catalog, pg_temp as $$
begin
  return query
  select e.i, first.position, head.version, head.type, compared.is_same,
         case when not compared.is_same and first.login_id = any (taskledger_internal.own_logins())
              then coalesce(first.args, '') end
    from unnest(kinds, biz_ids, existing_tasks.args) with ordinality as e(kind, biz_id, args, i)
   cross join lateral (
     select f.position, f.login_id, f.data::text as args from taskledger.event f
      where f.kind = e.kind and f.biz_id = e.biz_id
        and f.version = taskledger_internal.args_version(e.kind, e.biz_id)) first
   cross join lateral (
     select taskledger_internal.is_same_json(first.args, e.args)
         or first.args is null and first.position <= taskledger_internal.erased_until(e.kind, e.biz_id)
            as is_same offset 0) compared
   cross join lateral (
     select h.version, h.type from taskledger.event h
      where h.kind = e.kind and h.biz_id = e.biz_id
      order by h.version desc limit 1) head;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.existing_tasks(text[], text[], text[]) is
  'Returns for each key whose task exists its number in the arrays, the position of the event with its args, the '
  'version and the type of the last one, and whether the task has these args, or had args that are erased. If the '
  'args differ and the session''s login enqueued it, also its args.';

-- A statement that inserts a task and is followed by the commit in the same round trip calls this if it has inserted
-- nothing. It replaces a second insert in the statement, which cost a quarter of the transaction.
-- +goose StatementBegin
create function taskledger_internal.check_existing(kind text, biz_id text, args text, accepts_other_args boolean)
returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if not exists (
       select from taskledger_internal.existing_tasks(array[kind], array[biz_id], array[args]) t
        where accepts_other_args or t.same_args)
  then
    raise not_null_violation using message = 'the task is rejected, or exists with other args',
      schema = 'taskledger', table = 'event', column = 'version';
  end if;
  return null;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_existing(text, text, text, boolean) is
  'Raises not_null_violation unless the task exists, and with these args if others are not accepted.';

-- +goose StatementBegin
create function taskledger_internal.refuse_overload(kind text, is_later boolean) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  full_kind record;
begin
  select o.max_waiting, o.retry_after_ms, o.policy,
         o.waiting + case when is_later then o.scheduled else 0 end as waiting
    into full_kind
    from taskledger.overload o
   where o.kind = refuse_overload.kind;
  perform nextval('taskledger.rejected');
  raise exception 'taskledger: too many tasks of kind % wait: %, of at most %',
      refuse_overload.kind, full_kind.waiting, full_kind.max_waiting
    using errcode = 'configuration_limit_exceeded',
          detail = json_build_object('kind', refuse_overload.kind, 'waiting', full_kind.waiting,
                                     'max_waiting', full_kind.max_waiting,
                                     'retry_after_ms', full_kind.retry_after_ms, 'policy', full_kind.policy)::text,
          hint = 'try again after ' || full_kind.retry_after_ms || ' ms'
                 || case full_kind.policy
                      when 'caller_runs' then ', or run it in your transaction by workers.Caller in Go'
                      else '' end;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.refuse_overload(text, boolean) is
  'Raises the error that too many tasks of a kind wait, and counts it. is_later: scheduled tasks and tasks '
  'in line count, too.';

-- The one insert of an event with args after version 1. With an order key and no due time, the task lines up. Returns
-- null if another transaction has appended that version, or has removed the task. The caller has
-- drawn the transaction's id
-- before it read the clock for due.
-- +goose StatementBegin
create function taskledger_internal.append_run(kind text, biz_id text, expected integer, shard smallint, run integer,
                                               args text, meta text, actor text, data_version integer,
                                               priority integer, partition text, order_key text, login_id integer,
                                               due timestamptz, start_by timestamptz, finish_by timestamptz)
returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  -- A call of with_times takes a quarter of the time of the whole function, even without times.
  has_times constant boolean := num_nonnulls(append_run.due, append_run.start_by, append_run.finish_by) > 0;
  added_position bigint;
begin
  with tx as materialized (select pg_current_xact_id() as xid)
  insert into taskledger.event (xid, version, attempt, shard, type, login_id, run, data_version, priority, partition,
                                kind, biz_id, order_key, actor, data, meta)
  select tx.xid, append_run.expected + 1, 0, append_run.shard,
         case when append_run.due is not null then 'scheduled' when append_run.order_key is null then 'enqueued'
              else 'lined_up' end::taskledger.event_type,
         append_run.login_id, append_run.run, append_run.data_version, append_run.priority,
         nullif(append_run.partition, ''), append_run.kind, append_run.biz_id, append_run.order_key,
         coalesce(nullif(append_run.actor, ''), session_user::text), append_run.args::json,
         case when has_times then taskledger_internal.with_times(append_run.meta, append_run.due, append_run.start_by,
                                                                 append_run.finish_by)
              else append_run.meta end::json
    from tx
   where taskledger_internal.still_ends(append_run.kind, append_run.biz_id, append_run.expected)
      on conflict (kind, biz_id, version) do nothing
  returning event.position into added_position;
  if added_position is null then
    return null;
  end if;
  if has_times then
    insert into taskledger.timer (due_at, kind, biz_id, version, reason)
    select taskledger_internal.due_at(null, t.at), append_run.kind, append_run.biz_id, append_run.expected + 1, t.reason
      from (values (append_run.due, 'due'), (append_run.start_by, 'start_by'),
                   (append_run.finish_by, 'finish_by')) t(at, reason)
     where t.at is not null;
  end if;
  perform taskledger_internal.wake(
    case when append_run.due is null and append_run.order_key is null then added_position end);
  return added_position;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.append_run(text, text, integer, smallint, integer, text, text, text, integer,
                                                   integer, text, text, integer, timestamptz, timestamptz,
                                                   timestamptz) is
  'Appends an event with args: the beginning of a run, or other args of a run. Returns its position; null if the task '
  'has moved on.';

-- Enqueues the next run of a finished task, or, unless if_exists is rerun, replaces the args and times of a task that
-- has not begun; with follow, a task that has begun gets a run behind it. A compare-and-set on the primary key, like
-- each append: if it is lost, the new head decides. A worker that has begun the replaced version, and has not recorded
-- it, is fenced off by it.
--
-- Without a priority or a partition, a replaced task keeps its own, and the next run gets the default. A replaced task
-- keeps its order key, and moves to the end of the line. The next run gets the order key of the call.
--
-- The run that it appends after a finished one takes the place of a run that still waits behind that: as begin_next, it
-- ends the waiting one first, so both lock the keys in the same order.
--
-- A task whose last run, or whose waiting run, another login has enqueued is refused, as a change of that task is: see
-- check_replace. The login of a run may cancel it.
--
-- A first version whose key was archived is discarded, as by the dispatcher, and the next run follows.
--
-- It waits for concurrent transactions that append to the task. Volatile, so that each of its statements sees the
-- winner of a race. Run numbers follow the newest event with args. Indexes: primary key, event_run.
-- +goose StatementBegin
create function taskledger_internal.enqueue_again(kind text, biz_id text, if_exists text, args text, meta text,
                                                  actor text, data_version integer, priority integer, partition text,
                                                  run_after bigint, run_at timestamptz, start_by timestamptz,
                                                  finish_by timestamptz, defer_us bigint, throttle_us bigint,
                                                  order_key text, pass_if_dead boolean,
                                                  out "position" bigint, out version integer,
                                                  out type taskledger.event_type)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  head record;
  next_run integer;
  is_finished boolean;
  due timestamptz;
  bound timestamptz;
  ended integer; -- the version of the event that ended the run before
  line text;     -- the order key of the new event
  waiting record; -- the newest event of the run behind it
  behind integer; -- the version of the run that waits behind it
  newest record;  -- the newest event with args after version 1
  own_login integer;
  archived integer;
  duplicate_end integer; -- the version that discards a duplicate of an archived key
begin
  -- Only the calls that can find a fault: each costs as much as a query. No limit of sizes is below 4 KiB.
  if enqueue_again.actor <> '' then
    perform taskledger_internal.check_actor(enqueue_again.actor);
  end if;
  if octet_length(enqueue_again.args) > 1024 then
    perform taskledger_internal.check_nesting('args', enqueue_again.args);
    perform taskledger_internal.check_size('args', 'max_args_bytes', enqueue_again.args);
  end if;
  if enqueue_again.meta is not null then
    perform taskledger_internal.check_nesting('meta', enqueue_again.meta);
    perform taskledger_internal.check_meta(enqueue_again.meta::json, enqueue_again.args::json);
    perform taskledger_internal.check_size('meta', 'max_meta_bytes', enqueue_again.meta);
  end if;
  if num_nonnulls(enqueue_again.run_at, enqueue_again.start_by, enqueue_again.finish_by) > 0 then
    perform taskledger_internal.check_times(enqueue_again.run_at, null, enqueue_again.start_by,
                                            enqueue_again.finish_by);
  end if;
  if enqueue_again.data_version not between 1 and 32767 then
    raise exception 'taskledger: invalid data_version %: must be between 1 and 32767', enqueue_again.data_version
      using errcode = 'invalid_parameter_value';
  end if;
  if enqueue_again.priority not between 0 and 4 then
    raise exception 'taskledger: invalid priority %: must be between 1 (urgent) and 4 (low)', enqueue_again.priority
      using errcode = 'invalid_parameter_value';
  end if;
  if enqueue_again.partition <> '' then
    perform taskledger_internal.check_partition(enqueue_again.partition);
  end if;
  if enqueue_again.order_key is not null or enqueue_again.pass_if_dead then
    perform taskledger_internal.check_order_key(enqueue_again.order_key, enqueue_again.pass_if_dead);
  end if;
  -- The common case takes one statement, a third of the time of the loop: an available task without new times, which
  -- this login has enqueued. The loop decides about all others. The statement reads the last event itself, so it needs
  -- no still_ends.
  if enqueue_again.if_exists = 'replace' and not starts_with(enqueue_again.kind, 'taskledger.')
      and num_nonnulls(enqueue_again.run_after, enqueue_again.run_at, enqueue_again.start_by, enqueue_again.finish_by,
                       enqueue_again.defer_us, enqueue_again.throttle_us, enqueue_again.order_key) = 0
      and not coalesce(enqueue_again.pass_if_dead, false) then
    with tx as materialized (select pg_current_xact_id() as xid)
    insert into taskledger.event as added (xid, version, attempt, shard, type, login_id, run, data_version, priority,
                                           partition, kind, biz_id, actor, data, meta)
    select tx.xid, h.version + 1, 0, h.shard, 'enqueued', l.id, coalesce(h.run, r.run, 1), enqueue_again.data_version,
           coalesce(nullif(enqueue_again.priority, 0), h.priority),
           coalesce(nullif(enqueue_again.partition, ''), h.partition), enqueue_again.kind, enqueue_again.biz_id,
           coalesce(nullif(enqueue_again.actor, ''), session_user::text), enqueue_again.args::json,
           enqueue_again.meta::json
      from tx
     cross join lateral (
       select e.version, e.type, e.attempt, e.shard, e.login_id, e.run, e.priority, e.partition, e.order_key
         from taskledger.event e
        where e.kind = enqueue_again.kind and e.biz_id = enqueue_again.biz_id
        order by e.version desc
        limit 1) h
     cross join lateral (
       select o.id from taskledger.logins o where o.name = session_user limit 1) l
      left join lateral (
       select e.run, e.login_id
         from taskledger.event e
        where e.kind = enqueue_again.kind and e.biz_id = enqueue_again.biz_id and e.run is not null
          and h.run is null and h.version > 1
        order by e.version desc
        limit 1) r on true
     where h.type = 'enqueued' and h.attempt = 0 and h.order_key is null
       and l.id = coalesce(r.login_id, case when h.run is not null or h.version = 1 then h.login_id end)
       and (h.version > 1
            or taskledger_internal.archived_version(enqueue_again.kind, enqueue_again.biz_id) is null)
        on conflict (kind, biz_id, version) do nothing
    returning added.position, added.version, added.type into "position", version, type;
    if "position" is not null then
      if taskledger_internal.relay_sleeps() then
        perform taskledger_internal.wake("position");
      end if;
      return;
    end if;
  end if;
  perform taskledger_internal.check_key(enqueue_again.kind, enqueue_again.biz_id);
  own_login := (select l.id from taskledger.logins l where l.name = session_user limit 1);
  loop
    line := enqueue_again.order_key;
    select h.version, h.type, h.attempt, h.shard, h.priority, h.partition, h.order_key, h.login_id into head
      from taskledger.event h
     where h.kind = enqueue_again.kind and h.biz_id = enqueue_again.biz_id
     order by h.version desc
     limit 1;
    if head.version is null then
      return;
    end if;
    -- Version 1 of an archived key never runs: it is discarded first, so that the next run has a version of its own.
    archived := case when head.version = 1
                     then taskledger_internal.archived_version(enqueue_again.kind, enqueue_again.biz_id) end;
    if archived is not null then
      perform taskledger_internal.discard_archived(array[enqueue_again.kind], array[enqueue_again.biz_id],
                                                   enqueue_again.actor);
      duplicate_end := archived + 1;
      continue;
    end if;
    select r.run, r.login_id into newest
      from taskledger.event r
     where r.kind = enqueue_again.kind and r.biz_id = enqueue_again.biz_id and r.run is not null
     order by r.version desc
     limit 1;
    next_run := 1 + coalesce(newest.run, 1);
    if newest.login_id is null and head.version > 1 then
      newest.login_id := (
        select e.login_id
          from taskledger.event e
         where e.kind = enqueue_again.kind and e.biz_id = enqueue_again.biz_id and e.version = 1);
    end if;
    if coalesce(newest.login_id, head.login_id) is distinct from own_login then
      perform taskledger_internal.check_replace(coalesce(newest.login_id, head.login_id), enqueue_again.kind,
                                                enqueue_again.biz_id);
    end if;
    if head.type not in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded') then
      if enqueue_again.if_exists = 'rerun' or head.attempt > 0
          or head.type not in ('enqueued', 'scheduled', 'lined_up', 'released')
          or exists (
               select from taskledger.timer t
                where t.due_at = taskledger_internal.end_of_time() and t.kind = enqueue_again.kind
                  and t.biz_id = enqueue_again.biz_id and t.version = head.version and t.reason = 'after') then
        if enqueue_again.if_exists = 'follow' then
          "position" := taskledger_internal.enqueue_behind(
            enqueue_again.kind, enqueue_again.biz_id, enqueue_again.args, enqueue_again.meta, enqueue_again.actor,
            enqueue_again.data_version, enqueue_again.priority, enqueue_again.partition, enqueue_again.order_key,
            enqueue_again.pass_if_dead,
            taskledger_internal.due_at(nullif(enqueue_again.run_after, 0), enqueue_again.run_at),
            enqueue_again.start_by, enqueue_again.finish_by, enqueue_again.throttle_us);
          version := head.version;
          type := head.type;
        elsif current_setting('transaction_isolation') in ('repeatable read', 'serializable') then
          begin -- the task may have finished since the snapshot: then PostgreSQL reports a serialization failure
            perform taskledger_internal.append_event(
              enqueue_again.kind, enqueue_again.biz_id, head.version, 'cancelled', session_user, null);
            raise sqlstate 'TL007'; -- takes the event back
          exception when sqlstate 'TL007' then
            null;
          end;
        end if;
        return;
      end if;
      next_run := next_run - 1;
      if enqueue_again.order_key <> coalesce(head.order_key, '') then
        raise exception 'taskledger: invalid order_key %: task %/% waits with %',
            quote_literal(enqueue_again.order_key), enqueue_again.kind, enqueue_again.biz_id,
            coalesce('order key ' || quote_literal(head.order_key), 'no order key')
          using errcode = 'invalid_parameter_value',
                hint = 'replacing args keeps the order key: omit it, or cancel the task and enqueue it again';
      end if;
      line := head.order_key;
    end if;
    is_finished := head.type in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded');
    perform pg_current_xact_id();  -- before the clock is read: see table timer
    due := null;
    if num_nonnulls(enqueue_again.run_after, enqueue_again.run_at) > 0 then
      due := taskledger_internal.due_at(nullif(enqueue_again.run_after, 0),
                                        case when enqueue_again.run_at > clock_timestamp()
                                             then enqueue_again.run_at end);
    end if;
    if num_nonnulls(enqueue_again.defer_us, enqueue_again.throttle_us) > 0
        and head.version is distinct from duplicate_end then
      ended := taskledger_internal.newest_of(enqueue_again.kind, enqueue_again.biz_id,
                                             '{succeeded,buried,cancelled,expired,discarded}');
      if ended < head.version then -- the first event of this run
        bound := (
          select e.recorded_at + enqueue_again.defer_us * interval '1 microsecond'
            from taskledger.event e
           where e.kind = enqueue_again.kind and e.biz_id = enqueue_again.biz_id and e.version = ended + 1);
        due := case when due > bound then case when bound > clock_timestamp() then bound end else due end;
      end if;
      bound := (
        select e.recorded_at + enqueue_again.throttle_us * interval '1 microsecond'
          from taskledger.event e
         where e.kind = enqueue_again.kind and e.biz_id = enqueue_again.biz_id and e.version = ended);
      if bound > clock_timestamp() then
        due := greatest(due, bound);
      end if;
    end if;
    behind := null;
    if is_finished then
      if head.version is distinct from duplicate_end and exists (
           select from taskledger.overload o
            where o.kind = enqueue_again.kind
              and case when due is null and line is null then o.closed else o.closed_later end) then
        perform taskledger_internal.refuse_overload(enqueue_again.kind, num_nonnulls(due, line) > 0);
      end if;
      -- A run that waited behind the run before, and that the scheduler has not begun yet, has older args.
      select n.version, n.type, n.login_id into waiting
        from taskledger.event n
       where n.kind = 'taskledger.next'
         and n.biz_id = taskledger_internal.next_id(enqueue_again.kind, enqueue_again.biz_id)
       order by n.version desc
       limit 1;
      behind := case when waiting.type = 'scheduled' then waiting.version end;
    end if;
    if behind is not null then
      if waiting.login_id is distinct from own_login then
        perform taskledger_internal.check_replace(waiting.login_id, enqueue_again.kind, enqueue_again.biz_id);
      end if;
      continue when taskledger_internal.append_event(
        'taskledger.next', taskledger_internal.next_id(enqueue_again.kind, enqueue_again.biz_id), behind, 'cancelled',
        session_user, '{"reason":"a later enqueue has begun the next run"}') is null;
    end if;
    "position" := taskledger_internal.append_run(
      enqueue_again.kind, enqueue_again.biz_id, head.version, head.shard, next_run, enqueue_again.args,
      taskledger_internal.with_pass_if_dead(enqueue_again.meta, enqueue_again.pass_if_dead), enqueue_again.actor,
      enqueue_again.data_version,
      coalesce(nullif(enqueue_again.priority, 0),
               case when head.type in ('enqueued', 'scheduled', 'lined_up', 'released') then head.priority end, 0),
      coalesce(nullif(enqueue_again.partition, ''),
               case when head.type in ('enqueued', 'scheduled', 'lined_up', 'released') then head.partition end),
      line, coalesce(own_login, taskledger_internal.login_id()), due, enqueue_again.start_by,
      enqueue_again.finish_by);
    exit when "position" is not null;
    if behind is not null then -- its end must not stay without the run that takes its place
      raise exception 'taskledger: task %/% was changed at the same moment', enqueue_again.kind, enqueue_again.biz_id
        using errcode = 'serialization_failure', hint = 'try again';
    end if;
  end loop;
  version := head.version + 1;
  type := case when due is not null then 'scheduled' when line is null then 'enqueued' else 'lined_up' end;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.enqueue_again(text, text, text, text, text, text, integer, integer, text,
                                                      bigint, timestamptz, timestamptz, timestamptz, bigint,
                                                      bigint, text, boolean) is
  'Enqueues the next run of a finished task, replaces the args of a task that has not begun, or lets a run follow one '
  'that has, as if_exists wants it. Returns the position of the new event, with the version and the type of the '
  'task''s last one; or null as position if the task does not exist, or is not changed. Raises an error if too many '
  'tasks of the kind wait.';

-- The key of the task that stands for another task's next run: nextrun.Of in Go.
create function taskledger_internal.next_id(kind text, biz_id text) returns text
language sql immutable strict parallel safe
return case when octet_length(kind) + octet_length(biz_id) < 255 then kind || '/' || biz_id
            else '#' || encode(sha256(convert_to(kind || '/' || biz_id, 'UTF8')), 'hex') end;

comment on function taskledger_internal.next_id(text, text) is
  'Returns the biz_id of the task of kind taskledger.next that stands for the next run of a task.';

-- The run waits as a task of kind taskledger.next, after the task (otherwise: run). Its meta is {"after":…,"due":…,
-- "of":…}: the times, the throttle and the order key of the run, null for none, and the run's meta. The order key is
-- not the event's: only the run itself lines up. The run's meta is last, so that text functions find it:
-- PostgreSQL cannot decode every JSON text that it stores. The login is the session's, and so the run's.
--
-- It locks the key of that task alone. Volatile, so that each of its statements sees the winner of a race.
-- +goose StatementBegin
create function taskledger_internal.enqueue_behind(kind text, biz_id text, args text, meta text, actor text,
                                                   data_version integer, priority integer, partition text,
                                                   order_key text, pass_if_dead boolean, due timestamptz,
                                                   start_by timestamptz, finish_by timestamptz, throttle_us bigint)
returns bigint
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  id constant text := taskledger_internal.next_id(enqueue_behind.kind, enqueue_behind.biz_id);
  stored constant text := '{"after":' || json_build_object(
      'keys', json_build_array(json_build_object('kind', enqueue_behind.kind, 'biz_id', enqueue_behind.biz_id)),
      'otherwise', 'run')
    || ',"due":' || json_build_array(due, start_by, finish_by, throttle_us, order_key)
    || ',"of":' || coalesce(taskledger_internal.with_pass_if_dead(enqueue_behind.meta, enqueue_behind.pass_if_dead),
                          'null') || '}';
  head record;
  added record;
begin
  loop
    select h.version, h.type, h.login_id, coalesce((
             select r.run from taskledger.event r
              where r.kind = 'taskledger.next' and r.biz_id = id and r.run is not null
              order by r.version desc limit 1), 1) as run
      into head
      from taskledger.event h
     where h.kind = 'taskledger.next' and h.biz_id = id
     order by h.version desc
     limit 1;
    if head.type = 'scheduled' and head.login_id is distinct from (
         select l.id from taskledger.logins l where l.name = session_user limit 1) then
      perform taskledger_internal.check_replace(head.login_id, enqueue_behind.kind, enqueue_behind.biz_id);
    end if;
    with tx as materialized (
      select pg_current_xact_id() as xid,
             coalesce((select l.id from taskledger.logins l where l.name = session_user limit 1),
                      taskledger_internal.login_id()) as login_id)
    insert into taskledger.event (xid, version, attempt, shard, type, login_id, run, data_version, priority,
                                  partition, kind, biz_id, actor, data, meta)
    select tx.xid, coalesce(head.version, 0) + 1, 0, taskledger.shard_of(id), 'scheduled', tx.login_id,
           case when head.version is not null
                then head.run + case when head.type = 'scheduled' then 0 else 1 end end,
           enqueue_behind.data_version, coalesce(enqueue_behind.priority, 0),
           nullif(enqueue_behind.partition, ''), 'taskledger.next', id,
           coalesce(nullif(enqueue_behind.actor, ''), session_user::text), enqueue_behind.args::json, stored::json
      from tx
        on conflict (kind, biz_id, version) do nothing
    returning event.position, event.version into added;
    exit when added.position is not null;
  end loop;
  insert into taskledger.timer (due_at, kind, biz_id, version, reason)
  values (taskledger_internal.end_of_time(), 'taskledger.next', id, added.version, 'after');
  perform taskledger_internal.wake();
  return added.position;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.enqueue_behind(text, text, text, text, text, integer, integer, text, text,
                                                       boolean, timestamptz, timestamptz, timestamptz, bigint) is
  'Enqueues a run behind the last run of a task, or replaces the args of the run that waits there. Returns the '
  'position of the event.';

-- Called by the scheduler when the task has finished. The next run and the end of the task that stands for it commit
-- together. If the task was cancelled, the run is cancelled, too. The limit of the kind was decided for the run before.
--
-- It runs with its owner's rights, so that the run belongs to the login that has enqueued it.
-- +goose StatementBegin
create function taskledger_internal.begin_next(kind text, biz_id text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  id constant text := taskledger_internal.next_id(begin_next.kind, begin_next.biz_id);
  next record;
  head record;
  times json;
  meta text;
  due timestamptz;
begin
  select e.version, e.type, e.login_id, e.data_version, e.priority, e.partition, e.actor, e.data::text as args,
         e.meta::text as meta
    into next
    from taskledger.event e
   where e.kind = 'taskledger.next' and e.biz_id = id
   order by e.version desc
   limit 1;
  if next.type is distinct from 'scheduled' then
    return true;
  end if;
  select e.version, e.type, e.shard, e.recorded_at into head
    from taskledger.event e
   where e.kind = begin_next.kind and e.biz_id = begin_next.biz_id
   order by e.version desc
   limit 1;
  if head.type = 'cancelled' then
    perform taskledger_internal.append_event('taskledger.next', id, next.version, 'cancelled', 'scheduler',
                                             '{"reason":"the run before was cancelled"}');
    return true;
  elsif head.type is null or head.type not in ('succeeded', 'buried', 'expired', 'discarded') then
    return false;
  end if;
  times := substring(next.meta from ',"due":([[].*?[]]),"of":');
  meta := left(substr(next.meta, strpos(next.meta, ',"of":') + 6), -1);
  perform pg_current_xact_id();  -- before the clock is read: see table timer
  due := greatest((times ->> 0)::timestamptz,
                  head.recorded_at + (times ->> 3)::bigint * interval '1 microsecond');
  begin
    if taskledger_internal.append_event('taskledger.next', id, next.version, 'released', 'scheduler',
                                        '{"reason":"the run before has finished"}') is null then
      return false; -- another enqueue has replaced its args, or another scheduler has begun it
    end if;
    perform taskledger_internal.append_event('taskledger.next', id, next.version + 1, 'succeeded', 'scheduler', null);
    if taskledger_internal.append_run(
         begin_next.kind, begin_next.biz_id, head.version, head.shard, 1 + coalesce((
           select r.run from taskledger.event r
            where r.kind = begin_next.kind and r.biz_id = begin_next.biz_id and r.run is not null
            order by r.version desc limit 1), 1),
         next.args, nullif(meta, 'null'), next.actor, next.data_version, next.priority, next.partition,
         times ->> 4, next.login_id,
         case when due > clock_timestamp() then due end, (times ->> 1)::timestamptz,
         (times ->> 2)::timestamptz) is null then
      raise sqlstate 'TL007'; -- another run has begun first, so this one goes on waiting
    end if;
  exception when sqlstate 'TL007' then
    return false;
  end;
  return true;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.begin_next(text, text) is
  'Begins the run that waits behind the last run of a task, if that has finished. Returns whether no run waits any '
  'more.';

-- An entry whose task does not exist has not been inserted because of the limit of its kind, even if it is not reached
-- by now; unless the insert follows. If the transaction cannot see other tasks, only a limit that is reached is the
-- reason.
--
-- Indexes: primary keys. With its owner's rights, because a producer may not read events.
-- +goose StatementBegin
create function taskledger_internal.overfull_entry(kinds text[], biz_ids text[], if_exists text[], later boolean[],
                                                   insert_follows boolean)
returns table (i bigint, policy text, waiting bigint, max_waiting bigint, retry_after_ms bigint)
language plpgsql volatile rows 1 security definer set search_path = pg_catalog, pg_temp as $$
begin
  if pg_sequence_last_value('taskledger.limits_set'::regclass) is null then
    return;
  end if;
  return query
  select e.i, o.policy, o.waiting + case when e.later then o.scheduled else 0 end, o.max_waiting, o.retry_after_ms
    from unnest(kinds, biz_ids, overfull_entry.if_exists, overfull_entry.later)
         with ordinality as e(kind, biz_id, if_exists, later, i)
    join taskledger.overload o on o.kind = e.kind
   cross join lateral (select case when e.later then o.closed_later else o.closed end as closed) is_now
    left join lateral (
      select h.type from taskledger.event h
       where h.kind = e.kind and h.biz_id = e.biz_id
       order by h.version desc
       limit 1) head on true
   where case
           when head.type is null then
             not overfull_entry.insert_follows and o.policy in ('reject', 'caller_runs')
             and (is_now.closed or current_setting('transaction_isolation') not in ('repeatable read', 'serializable'))
           else is_now.closed and e.if_exists in ('rerun', 'replace', 'follow')
                and head.type in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded')
         end
   order by is_now.closed desc, e.i
   limit 1;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.overfull_entry(text[], text[], text[], boolean[], boolean) is
  'Returns an entry of a batch that must not be written because too many tasks of its kind wait: a new task, or the '
  'next run of a finished one; with the limit of its kind. later: whether an entry is due later, or waits for '
  'predecessors or in line. Returns nothing if all may be written.';

-- PostgreSQL cannot read a member of an entry that contains the escape \u0000 or half of a surrogate pair, and args may
-- contain these. A marker that the entries do not contain replaces their escapes until args are separated.
-- +goose StatementBegin
create function taskledger_internal.split_args(entries json, out others json, out args text[])
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  marker constant text := '<' || md5(entries::text) || '>';
  marked constant json := regexp_replace(
    entries::text, E'(?<!\\\\)((?:\\\\\\\\)*)\\\\u(0000|d[89a-f])', E'\\1' || marker || E'\\2', 'gi');
begin
  select json_agg(case when json_typeof(e.v) = 'object' then o.others else e.v end order by e.i),
         array_agg(o.args order by e.i)
    into others, args
    from json_array_elements(marked) with ordinality as e(v, i)
    left join lateral (
      select replace(coalesce(json_object_agg(m.key, m.value order by m.n) filter (where m.key <> 'args'), '{}')::text,
                     marker, E'\\u')::json as others,
             replace((array_agg(m.value::text order by m.n desc) filter (where m.key = 'args'))[1],
                     marker, E'\\u') as args
        from json_each(case when json_typeof(e.v) = 'object' then e.v else '{}' end) with ordinality m(key, value, n)
    ) o on true;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.split_args(json) is
  'Returns the entries of taskledger.enqueue_many without args, and the args of each.';

-- +goose StatementBegin
create function taskledger.enqueue_many(entries json)
returns table (kind text, biz_id text, is_new boolean, state taskledger.task_state, version integer,
               same_args boolean, "position" bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  max_args constant integer := (select s.value::integer from taskledger.setting s where s.name = 'max_args_bytes');
  max_meta constant integer := (select s.value::integer from taskledger.setting s where s.name = 'max_meta_bytes');
  unreadable constant text := E'\\\\u(?:0000|[dD][89a-fA-F])'; -- the escape \u0000 or a half of a surrogate pair
  entry record;
  answer record;
  key text;
  one_by_one boolean := false;  -- an entry has times or unreadable args, or enqueueing is closed for its kind
  in_order boolean := false;    -- an entry may come after an earlier one, or stand behind it in a line
  added_positions bigint[];
  answered bigint;
  new_of boolean[];             -- the results of the entries, one by one
  state_of taskledger.task_state[];
  version_of integer[];
  same_of boolean[];
  position_of bigint[];
  args_apart text[];            -- of each entry, if an entry has escapes that PostgreSQL cannot read
begin
  if json_typeof(entries) is distinct from 'array' then
    raise exception 'taskledger: invalid entries: must be a JSON array' using errcode = 'invalid_parameter_value';
  end if;
  -- In two steps, because a lookaround at each character took longer than everything else. The second one is without
  -- backslashes that are escaped and without whole surrogate pairs.
  if entries::text ~ unreadable and
     regexp_replace(entries::text, E'\\\\\\\\|\\\\u[dD][89abAB]..\\\\u[dD][c-fC-F]', '', 'g') ~ unreadable then
    select s.others, s.args into entries, args_apart from taskledger_internal.split_args(entries) s;
    one_by_one := true;
  end if;
  for entry in
    select e.i, e.v, e.v->>'kind' as kind, e.v->>'biz_id' as biz_id, e.v->>'shard' as shard,
           e.v->>'data_version' as data_version, e.v->>'priority' as priority, e.v->>'partition' as partition,
           coalesce(args_apart[e.i]::json, e.v->'args') as args
      from json_array_elements(entries) with ordinality as e(v, i)
  loop
    perform taskledger_internal.check_key(entry.kind, entry.biz_id);
    perform taskledger_internal.check_actor(entry.v->>'actor');
    if octet_length(entry.args::text) > max_args then
      raise exception 'taskledger: entry %: invalid args: must have at most % bytes, got %',
          entry.i, max_args, octet_length(entry.args::text)
        using errcode = 'invalid_parameter_value', hint = 'enqueue a reference to a larger payload';
    end if;
    if octet_length((entry.v->'meta')::text) > max_meta then
      raise exception 'taskledger: entry %: invalid meta: must have at most % bytes, got %',
          entry.i, max_meta, octet_length((entry.v->'meta')::text)
        using errcode = 'invalid_parameter_value';
    end if;
    if entry.shard is not null and (entry.shard !~ '^[0-9]{1,2}$' or entry.shard::integer > 63) then
      raise exception 'taskledger: entry %: invalid shard %: must be between 0 and 63',
          entry.i, quote_literal(left(entry.shard, 80))
        using errcode = 'invalid_parameter_value';
    end if;
    if entry.data_version !~ '^[0-9]{1,5}$' or entry.data_version::integer not between 1 and 32767 then
      raise exception 'taskledger: entry %: invalid data_version %: must be between 1 and 32767',
          entry.i, quote_literal(left(entry.data_version, 80))
        using errcode = 'invalid_parameter_value';
    end if;
    if entry.priority !~ '^[1-4]$' then
      raise exception 'taskledger: entry %: invalid priority %: must be between 1 (urgent) and 4 (low)',
          entry.i, quote_literal(left(entry.priority, 80))
        using errcode = 'invalid_parameter_value';
    end if;
    perform taskledger_internal.check_partition(entry.partition);
    perform taskledger_internal.check_nesting('args', entry.args::text);
    perform taskledger_internal.check_nesting('meta', (entry.v->'meta')::text);
    perform taskledger_internal.check_meta(entry.v->'meta', entry.args);
    for key in select json_object_keys(entry.v) loop
      if key in ('run_at', 'run_in', 'start_by', 'finish_by') then
        perform taskledger_internal.times_of(entry.v);
        one_by_one := true;
      elsif key = 'after' then
        perform taskledger_internal.check_after(entry.v -> 'after', entry.kind, entry.biz_id);
        one_by_one := true;
        in_order := true;
      elsif key in ('order_key', 'pass_if_dead') then
        perform taskledger_internal.check_order_key(entry.v ->> 'order_key', (entry.v ->> 'pass_if_dead')::boolean);
        one_by_one := true;
        in_order := true;
      elsif key = 'if_exists' then
        perform taskledger_internal.check_if_exists(entry.v ->> 'if_exists', entry.v -> 'after');
        one_by_one := one_by_one or entry.v ->> 'if_exists' in ('replace', 'rerun', 'follow');
      elsif key = 'check_archive' then
        one_by_one := one_by_one or (entry.v ->> 'check_archive')::boolean;
      elsif key in ('defer_at_most', 'throttle_for') then
        perform taskledger_internal.delay_of(key, entry.v ->> key);
        one_by_one := true;
      elsif key not in ('kind', 'biz_id', 'args', 'meta', 'shard', 'actor', 'data_version', 'priority',
                        'partition') then
        raise exception 'taskledger: entry %: unknown member %', entry.i, quote_literal(left(key, 80))
          using errcode = 'feature_not_supported',
                hint = 'the members are kind, biz_id, args, meta, shard, actor, run_at, run_in, start_by, finish_by, '
                       'data_version, after, priority, if_exists, partition, defer_at_most, throttle_for, order_key, '
                       'pass_if_dead and check_archive';
      end if;
    end loop;
  end loop;

  one_by_one := one_by_one or exists (
    select from json_array_elements(entries) e join taskledger.overload o on o.kind = e->>'kind' where o.closed);
  if one_by_one then -- in the order of the keys, or of the array
    for entry in
      select e.i, e.v, e.v->>'kind' as kind, e.v->>'biz_id' as biz_id,
             coalesce(args_apart[e.i]::json, e.v->'args') as args, e.v->'meta' as meta,
             (e.v->>'shard')::integer as shard, e.v->>'actor' as actor,
             (e.v->>'data_version')::integer as data_version, (e.v->>'priority')::integer as priority,
             e.v->>'partition' as partition
        from json_array_elements(entries) with ordinality as e(v, i)
       order by case when in_order then e.i end, e.v->>'kind' collate "C", e.v->>'biz_id' collate "C", e.i
    loop
      select first.is_new, first.state, first.version, first.same_args, first.position into answer
        from taskledger_internal.times_of(entry.v) t
       cross join lateral taskledger.enqueue(entry.kind, entry.biz_id, entry.args, t.run_at, entry.shard, entry.actor,
                                             entry.meta, t.run_in, t.start_by, t.finish_by,
                                             coalesce(entry.data_version, 1), entry.v -> 'after',
                                             entry.priority, coalesce(entry.v ->> 'if_exists', 'same'), entry.partition,
                                             (entry.v ->> 'defer_at_most')::interval,
                                             (entry.v ->> 'throttle_for')::interval,
                                             entry.v ->> 'order_key',
                                             coalesce((entry.v ->> 'pass_if_dead')::boolean, false),
                                             coalesce((entry.v ->> 'check_archive')::boolean, false)) first;
      new_of[entry.i] := answer.is_new;
      state_of[entry.i] := answer.state;
      version_of[entry.i] := answer.version;
      same_of[entry.i] := answer.same_args;
      position_of[entry.i] := answer."position";
    end loop;
    return query
    select e.v->>'kind', e.v->>'biz_id', new_of[e.i], state_of[e.i], version_of[e.i], same_of[e.i], position_of[e.i]
      from json_array_elements(entries) with ordinality as e(v, i)
     where version_of[e.i] is not null
     order by e.i;
    return;
  end if;

  with tx as materialized (
    select pg_current_xact_id() as xid,
           coalesce((select l.id from taskledger.logins l where l.name = session_user limit 1),
                    taskledger_internal.login_id()) as login_id
  ), added as (
    insert into taskledger.event (xid, version, attempt, shard, type, login_id, data_version, priority, partition,
                                  kind, biz_id, actor, data, meta)
    select tx.xid, 1, 0, coalesce(w.shard, taskledger.shard_of(w.biz_id)), 'enqueued', tx.login_id,
           coalesce(w.data_version, 1), coalesce(w.priority, 0), nullif(w.partition, ''), w.kind, w.biz_id,
           coalesce(nullif(w.actor, ''), session_user::text), w.args,
           case when json_typeof(w.meta) = 'object' then w.meta end
      from tx
     cross join (
       select e.i, e.v->>'kind' as kind, e.v->>'biz_id' as biz_id, e.v->'args' as args, e.v->'meta' as meta,
              (e.v->>'shard')::smallint as shard, e.v->>'actor' as actor,
              (e.v->>'data_version')::smallint as data_version, (e.v->>'priority')::smallint as priority,
              e.v->>'partition' as partition
         from json_array_elements(entries) with ordinality as e(v, i)) w
     order by w.kind collate "C", w.biz_id collate "C", w.i
        on conflict (kind, biz_id, version) do nothing
    returning position)
  select array_agg(a.position) into added_positions from added a;
  perform taskledger_internal.wake();

  -- A separate statement, because only a later snapshot sees the winner of a race.
  return query
  select w.kind, w.biz_id,
         w.nth = 1 and first.position in (select unnest(added_positions)),
         taskledger.state_after(head.type), head.version,
         taskledger_internal.is_same_json(first.data::text, w.args::text)
           or first.data is null and first.position <= taskledger_internal.erased_until(w.kind, w.biz_id),
         first.position
    from (
      select e.i, e.v->>'kind' as kind, e.v->>'biz_id' as biz_id, e.v->'args' as args,
             row_number() over (partition by e.v->>'kind', e.v->>'biz_id' order by e.i) as nth
        from json_array_elements(entries) with ordinality as e(v, i)) w
   cross join lateral (
      select f.position, f.data from taskledger.event f
       where f.kind = w.kind and f.biz_id = w.biz_id
         and f.version = taskledger_internal.args_version(w.kind, w.biz_id)) first
   cross join lateral (
      select h.version, h.type from taskledger.event h
       where h.kind = w.kind and h.biz_id = w.biz_id order by h.version desc limit 1) head
   order by w.i;
  get diagnostics answered = row_count;
  if answered < json_array_length(entries) then
    raise exception 'taskledger: a task was archived at the same moment'
      using errcode = 'serialization_failure', hint = 'try again';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger.enqueue_many(json) is
  'Enqueues many tasks in the caller''s transaction. entries is a JSON array of objects with the arguments of '
  'taskledger.enqueue: kind, biz_id and optionally args, meta, shard, actor, run_at, run_in, start_by, finish_by, '
  'data_version, after, priority, if_exists, partition, defer_at_most, throttle_for, order_key, '
  'pass_if_dead, check_archive. Returns a row for each entry, in order, like taskledger.enqueue.';

-- +goose StatementBegin
create function taskledger.enqueue(kind text, biz_id text, args json default null, run_at timestamptz default null,
                                   shard integer default null, actor text default null, meta json default null,
                                   run_in interval default null, start_by timestamptz default null,
                                   finish_by timestamptz default null, data_version integer default 1,
                                   after json default null, priority integer default null,
                                   if_exists text default 'same', partition text default null,
                                   defer_at_most interval default null, throttle_for interval default null,
                                   order_key text default null, pass_if_dead boolean default false,
                                   check_archive boolean default false)
returns table (is_new boolean, state taskledger.task_state, version integer, same_args boolean, "position" bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  max_meta constant integer := (select s.value::integer from taskledger.setting s where s.name = 'max_meta_bytes');
  timed constant boolean := num_nonnulls(run_at, run_in, start_by, finish_by) > 0;
  due timestamptz;         -- null: now
  first_type taskledger.event_type := 'enqueued';
  stored_meta json := case when json_typeof(meta) = 'object' then meta end;
  predecessors constant json := taskledger_internal.check_after(enqueue.after, enqueue.kind, enqueue.biz_id);
  missing record;
  full_kind record;
  discard boolean := false;
  added_position bigint;
  again record;
begin
  perform taskledger_internal.check_key(enqueue.kind, enqueue.biz_id);
  perform taskledger_internal.check_actor(enqueue.actor);
  perform taskledger_internal.check_size('args', 'max_args_bytes', enqueue.args::text);
  perform taskledger_internal.check_size('meta', 'max_meta_bytes', enqueue.meta::text);
  if enqueue.shard not between 0 and 63 then
    raise exception 'taskledger: invalid shard %: must be between 0 and 63', enqueue.shard
      using errcode = 'invalid_parameter_value';
  end if;
  if enqueue.data_version not between 1 and 32767 then
    raise exception 'taskledger: invalid data_version %: must be between 1 and 32767', enqueue.data_version
      using errcode = 'invalid_parameter_value';
  end if;
  if enqueue.priority not between 1 and 4 then
    raise exception 'taskledger: invalid priority %: must be between 1 (urgent) and 4 (low)', enqueue.priority
      using errcode = 'invalid_parameter_value';
  end if;
  perform taskledger_internal.check_partition(enqueue.partition);
  perform taskledger_internal.check_nesting('args', enqueue.args::text);
  perform taskledger_internal.check_nesting('meta', enqueue.meta::text);
  perform taskledger_internal.check_meta(enqueue.meta, enqueue.args);
  perform taskledger_internal.check_if_exists(enqueue.if_exists, enqueue.after, enqueue.defer_at_most,
                                              enqueue.throttle_for);
  perform taskledger_internal.check_order_key(enqueue.order_key, enqueue.pass_if_dead);
  if enqueue.order_key is not null then
    first_type := 'lined_up';
    stored_meta := taskledger_internal.with_pass_if_dead(stored_meta::text, enqueue.pass_if_dead);
  end if;

  if timed then
    perform taskledger_internal.check_times(run_at, run_in, start_by, finish_by);
    perform pg_current_xact_id();  -- before the clock is read: see table timer
    due := case when run_in > interval '0' then clock_timestamp() + run_in
                when run_at > clock_timestamp() then run_at end;
    first_type := case when due is null then first_type else 'scheduled' end;
    stored_meta := taskledger_internal.with_times(stored_meta::text, due, start_by, finish_by);
  end if;
  if predecessors is not null then
    if num_nonnulls(run_at, run_in) > 0 then
      raise exception 'taskledger: invalid after: must not be set together with run_at or run_in'
        using errcode = 'invalid_parameter_value';
    end if;
    select p.kind, p.biz_id into missing
      from json_to_recordset(predecessors -> 'keys') p(kind text, biz_id text)
     where not exists (
       select from taskledger.event e where e.kind = p.kind and e.biz_id = p.biz_id and e.version = 1)
     limit 1;
    if found then
      raise exception 'taskledger: invalid after: task %/% does not exist', missing.kind, missing.biz_id
        using errcode = 'invalid_parameter_value', hint = 'enqueue it first, or as an earlier entry';
    end if;
    first_type := 'scheduled';
    stored_meta := '{"after":' || predecessors::text
      || case when coalesce(stored_meta::text, '{}') ~ '^[[:space:]]*[{][[:space:]]*[}][[:space:]]*$' then '}'
              else ',' || regexp_replace(stored_meta::text, '^[[:space:]]*[{]', '') end;
    if octet_length(stored_meta::text) > max_meta then
      raise exception 'taskledger: invalid meta: must have at most % bytes with after, got %',
          max_meta, octet_length(stored_meta::text)
        using errcode = 'invalid_parameter_value';
    end if;
  end if;
  if enqueue.check_archive and enqueue.if_exists in ('same', 'ignore') then
    -- A duplicate is at most one version ahead of the archived task.
    return query
    select false, a.state, a.version, true, null::bigint
      from taskledger_internal.archived_keys(array[enqueue.kind], array[enqueue.biz_id]) a
     where not exists (
       select from taskledger.event e
        where e.kind = enqueue.kind and e.biz_id = enqueue.biz_id and e.version > a.version + 1);
    if found then
      return;
    end if;
  end if;
  select o.policy into full_kind
    from taskledger.overload o
   where o.kind = enqueue.kind and case first_type when 'enqueued' then o.closed else o.closed_later end;
  if full_kind.policy = 'discard' then
    discard := true;
  elsif full_kind.policy is not null and not exists (
      select from taskledger.event e
       where e.kind = enqueue.kind and e.biz_id = enqueue.biz_id and e.version = 1) then
    perform taskledger_internal.refuse_overload(enqueue.kind, first_type <> 'enqueued');
  end if;
  with tx as materialized (
    select pg_current_xact_id() as xid,
           coalesce((select l.id from taskledger.logins l where l.name = session_user limit 1),
                    taskledger_internal.login_id()) as login_id)
  insert into taskledger.event (xid, version, attempt, shard, type, login_id, data_version, priority, partition, kind,
                                biz_id, order_key, actor, data, meta)
  select tx.xid, 1, 0, coalesce(enqueue.shard::smallint, taskledger.shard_of(enqueue.biz_id)), first_type,
         tx.login_id, coalesce(enqueue.data_version, 1), coalesce(enqueue.priority, 0), nullif(enqueue.partition, ''),
         enqueue.kind, enqueue.biz_id, enqueue.order_key, coalesce(nullif(enqueue.actor, ''), session_user::text),
         enqueue.args, stored_meta
    from tx
      on conflict (kind, biz_id, version) do nothing
  returning event.position into added_position;
  if added_position is not null then
    perform taskledger_internal.wake(case when first_type <> 'lined_up' then added_position end);
  end if;
  if added_position is not null and discard then
    with tx as materialized (
      select pg_current_xact_id() as xid,
             coalesce((select l.id from taskledger.logins l where l.name = session_user limit 1),
                      taskledger_internal.login_id()) as login_id)
    insert into taskledger.event (xid, version, attempt, shard, type, login_id, priority, partition, kind, biz_id,
                                  order_key, actor, data)
    select tx.xid, 2, 0, coalesce(enqueue.shard::smallint, taskledger.shard_of(enqueue.biz_id)), 'discarded',
           tx.login_id, coalesce(enqueue.priority, 0), nullif(enqueue.partition, ''), enqueue.kind, enqueue.biz_id,
           enqueue.order_key, coalesce(nullif(enqueue.actor, ''), session_user::text),
           '{"reason":"too many tasks of its kind wait"}'
      from tx;
    return query select true, 'discarded'::taskledger.task_state, 2, true, added_position;
    return;
  end if;
  if added_position is not null then
    if timed or predecessors is not null then
      insert into taskledger.timer (due_at, kind, biz_id, version, reason)
      select taskledger_internal.due_at(null, t.at), enqueue.kind, enqueue.biz_id, 1, t.reason
        from (values (due, 'due'), (enqueue.start_by, 'start_by'), (enqueue.finish_by, 'finish_by'),
                     (case when predecessors is not null then taskledger_internal.end_of_time() end, 'after')
             ) t(at, reason)
       where t.at is not null;
    end if;
    if enqueue.if_exists not in ('replace', 'rerun', 'follow')
        or not taskledger_internal.runs_archived(enqueue.kind, enqueue.biz_id) then
      return query select true, taskledger.state_after(first_type), 1, true, added_position;
      return;
    end if;
  end if;

  if enqueue.if_exists in ('replace', 'rerun', 'follow') then
    select a.* into again
      from taskledger_internal.enqueue_again(
             enqueue.kind, enqueue.biz_id, enqueue.if_exists, enqueue.args::text,
             case when json_typeof(enqueue.meta) = 'object' then enqueue.meta::text end, enqueue.actor,
             coalesce(enqueue.data_version, 1), enqueue.priority, enqueue.partition,
             (extract(epoch from enqueue.run_in) * 1e6)::bigint, enqueue.run_at, enqueue.start_by, enqueue.finish_by,
             (extract(epoch from enqueue.defer_at_most) * 1e6)::bigint,
             (extract(epoch from enqueue.throttle_for) * 1e6)::bigint, enqueue.order_key, enqueue.pass_if_dead) a;
    if again.position is not null then
      return query select true, taskledger.state_after(again.type), again.version, true, again.position;
      return;
    end if;
  end if;
  return query
  select false, taskledger.state_after(head.type), head.version,
         taskledger_internal.is_same_json(first.data::text, enqueue.args::text)
           or first.data is null and first.position <= taskledger_internal.erased_until(enqueue.kind, enqueue.biz_id),
         first.position
    from taskledger.event first
   cross join lateral (
      select h.version, h.type from taskledger.event h
       where h.kind = first.kind and h.biz_id = first.biz_id order by h.version desc limit 1) head
   where first.kind = enqueue.kind and first.biz_id = enqueue.biz_id
     and first.version = taskledger_internal.args_version(enqueue.kind, enqueue.biz_id);
  if not found then -- the archive has removed the task since the insert
    return query
    select e.is_new, e.state, e.version, e.same_args, e.position
      from taskledger.enqueue(
             enqueue.kind, enqueue.biz_id, enqueue.args, enqueue.run_at, enqueue.shard, enqueue.actor, enqueue.meta,
             enqueue.run_in, enqueue.start_by, enqueue.finish_by, enqueue.data_version, enqueue.after,
             enqueue.priority, enqueue.if_exists, enqueue.partition, enqueue.defer_at_most, enqueue.throttle_for,
             enqueue.order_key, enqueue.pass_if_dead, enqueue.check_archive) e;
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger.enqueue(text, text, json, timestamptz, integer, text, json, interval, timestamptz,
                                       timestamptz, integer, json, integer, text, text, interval, interval, text,
                                       boolean, boolean) is
  'Enqueues one task in the caller''s transaction. It is due at run_at, or run_in from now by the database''s clock; '
  'a time in the past means now. The task expires if it is not started by start_by or not finished by finish_by. '
  'data_version is the version of the format of args. priority decides which waiting task of the kind begins first: 1 '
  'urgent, 2 high, 3 normal, 4 low; without it, normal. partition is the task''s '
  'tenant or other group: the partitions of a kind take turns. Tasks with the same order_key begin one after another '
  'has ended, in the order in which they were enqueued; with pass_if_dead, the next one also begins when this one is '
  'dead. after contains the keys of tasks that must have '
  'succeeded before, and the action otherwise: {"keys":[{"kind":"…","biz_id":"…"}],"otherwise":"cancel"}, or run, '
  'or wait. '
  'If the task (kind, biz_id) exists, nothing is written: is_new is false, and same_args is whether its args and args '
  'are equal as JSON values. With if_exists => ''rerun'', the next run of a finished task is enqueued, with these args '
  'and times; ''replace'' also replaces the args and times of a task that has not begun; and ''follow'' also '
  'enqueues one more run behind a run that has begun. Then is_new is true. These three need the rights of '
  'taskledger.cancel to the task. A replacement defers the task at most defer_at_most after its run '
  'was enqueued, and a run is due at the earliest throttle_for after the end of the previous run. With check_archive, '
  'an archived task is returned as existing, without a position; its args are not compared. Otherwise a new task '
  'with its key is discarded before it begins.';
