-- The schema that the migrations make, as pg_dump of PostgreSQL 15 prints it.
-- For review only; go test ./migrations -update rewrites it.

CREATE SCHEMA taskledger;

COMMENT ON SCHEMA taskledger IS 'Tasks as an append-only log of events. Start with the function enqueue and the table event.';

CREATE SCHEMA taskledger_internal;

COMMENT ON SCHEMA taskledger_internal IS 'Functions and views for statements, policies and functions of schema taskledger. They may change with each version.';

CREATE TYPE taskledger.event_type AS ENUM (
    'enqueued',
    'scheduled',
    'lined_up',
    'released',
    'started',
    'progressed',
    'succeeded',
    'failed',
    'interrupted',
    'snoozed',
    'buried',
    'cancelled',
    'expired',
    'discarded'
);

COMMENT ON TYPE taskledger.event_type IS 'What happened to a task. taskledger.state_after returns the state that follows.';

CREATE TYPE taskledger.task_state AS ENUM (
    'available',
    'scheduled',
    'in_line',
    'running',
    'retrying',
    'succeeded',
    'dead',
    'cancelled',
    'expired',
    'discarded'
);

COMMENT ON TYPE taskledger.task_state IS 'The state of a task, after its last event.';

CREATE FUNCTION taskledger.advance_feed(reader text, page text, "position" bigint) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  of_cursor text := taskledger_internal.subscriber_reader(reader);
  c record;
begin
  if page is null or page !~ '^[0-9]{1,18}@.' or "position" is null then
    raise exception 'taskledger: invalid page %: must be one that read_feed or advance_feed returned',
      coalesce(quote_literal(left(page, 100)), 'null') using errcode = 'invalid_parameter_value';
  end if;
  select n.n, n.seen, n.seen_top, n.seen_bound, n.until, n.top, n.bound, n.after_position, n.mark, n.login
    into c
    from taskledger.cursor n
   where n.reader = of_cursor and n.n = split_part(page, '@', 1)::bigint;
  if c.until is not null and ("position" <= c.after_position or "position" > c.top) then
    raise exception 'taskledger: invalid position %: must belong to an event of the page', "position"
      using errcode = 'invalid_parameter_value';
  end if;
  perform taskledger_internal.check_owner(reader, c.login);
  if c.until is null or taskledger_internal.incarnation() is distinct from substr(page, strpos(page, '@') + 1)
     or not taskledger_internal.append_cursor(of_cursor, c.n, c.seen, c.seen_top, c.seen_bound, c.until, c.top, c.bound,
                                              "position", c.mark, coalesce(c.login, session_user)) then
    raise exception 'taskledger: subscriber % has been moved since this page was read', reader
      using errcode = 'TL005', hint = 'Roll back, and call read_feed again.';
  end if;
  return c.n + 1 || '@' || split_part(page, '@', 2);
end
$$;

COMMENT ON FUNCTION taskledger.advance_feed(reader text, page text, "position" bigint) IS 'Passes the events of a page up to a position, in the transaction of their effect, and returns the page for the rest. SQLSTATE TL005 if another session has moved the subscriber: roll back.';

CREATE FUNCTION taskledger.cancel(kind text, biz_id text, reason text DEFAULT NULL::text, actor text DEFAULT NULL::text, if_version integer DEFAULT NULL::integer) RETURNS TABLE(is_changed boolean, state taskledger.task_state, version integer)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  return query
  select c.outcome = '', case when c.outcome = '' then taskledger.state_after('cancelled') else c.state end,
         coalesce((c.appended).version, c.version, 0)
    from taskledger_internal.change(cancel.kind, cancel.biz_id, 'cancelled', cancel.if_version, cancel.actor,
                                    cancel.reason, null, null, null) c;
end
$$;

COMMENT ON FUNCTION taskledger.cancel(kind text, biz_id text, reason text, actor text, if_version integer) IS 'Cancels an unfinished task in the caller''s transaction. The attempt of a worker that runs it cannot commit. A producer may cancel the tasks that its login has enqueued, an operator all. if_version: that the task must have. Returns whether it is cancelled, and its state and version now; if is_changed is false, the state does not allow the change, or is null for a task that does not exist.';

CREATE FUNCTION taskledger.claim(kind text, biz_id text, worker text, resume boolean DEFAULT false) RETURNS TABLE(version integer, attempt integer, args json, meta json, finish_by timestamp with time zone)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger.claim(kind text, biz_id text, worker text, resume boolean) IS 'Starts an attempt at a task: appends started, and returns its version (for finish, fail and snooze), the attempt''s number, the task''s args and meta, and its deadline. Returns no row if the task is not available. If live workers in Go handle the kind, it also returns no row for some seconds after the first heartbeat, until they record each start. With resume, an attempt that this worker has started counts as lost, and the next one starts. Returns no row if a limit of the kind allows no further start now. The worker needs a lease: see taskledger.heartbeat. Raises TL002 without a lease, TL003 if the kind is paused.';

CREATE FUNCTION taskledger.claim_next(kind text, worker text, how_many integer DEFAULT 1) RETURNS TABLE(biz_id text, version integer, attempt integer, args json, meta json, finish_by timestamp with time zone)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger.claim_next(kind text, worker text, how_many integer) IS 'Claims at most how_many waiting tasks of a kind, of the highest priority first and in the order in which they became available, unless other workers take them first. The partitions of a priority take turns, of one task or as many as their weight. Tasks that became available within the last seconds may come after all others, whatever their priority and partition. Its cost does not grow with finished tasks, tasks that wait for a time, or other kinds'' tasks. Returns no row if the kind is paused, or if claim would return none. Raises TL002 without a lease.';

CREATE FUNCTION taskledger.enqueue(kind text, biz_id text, args json DEFAULT NULL::json, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, shard integer DEFAULT NULL::integer, actor text DEFAULT NULL::text, meta json DEFAULT NULL::json, run_in interval DEFAULT NULL::interval, start_by timestamp with time zone DEFAULT NULL::timestamp with time zone, finish_by timestamp with time zone DEFAULT NULL::timestamp with time zone, data_version integer DEFAULT 1, after json DEFAULT NULL::json, priority integer DEFAULT NULL::integer, if_exists text DEFAULT 'same'::text, partition text DEFAULT NULL::text, defer_at_most interval DEFAULT NULL::interval, throttle_for interval DEFAULT NULL::interval, order_key text DEFAULT NULL::text, pass_if_dead boolean DEFAULT false, check_archive boolean DEFAULT false) RETURNS TABLE(is_new boolean, state taskledger.task_state, version integer, same_args boolean, "position" bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;

COMMENT ON FUNCTION taskledger.enqueue(kind text, biz_id text, args json, run_at timestamp with time zone, shard integer, actor text, meta json, run_in interval, start_by timestamp with time zone, finish_by timestamp with time zone, data_version integer, after json, priority integer, if_exists text, partition text, defer_at_most interval, throttle_for interval, order_key text, pass_if_dead boolean, check_archive boolean) IS 'Enqueues one task in the caller''s transaction. It is due at run_at, or run_in from now by the database''s clock; a time in the past means now. The task expires if it is not started by start_by or not finished by finish_by. data_version is the version of the format of args. priority decides which waiting task of the kind begins first: 1 urgent, 2 high, 3 normal, 4 low; without it, normal. partition is the task''s tenant or other group: the partitions of a kind take turns. Tasks with the same order_key begin one after another has ended, in the order in which they were enqueued; with pass_if_dead, the next one also begins when this one is dead. after contains the keys of tasks that must have succeeded before, and the action otherwise: {"keys":[{"kind":"…","biz_id":"…"}],"otherwise":"cancel"}, or run, or wait. If the task (kind, biz_id) exists, nothing is written: is_new is false, and same_args is whether its args and args are equal as JSON values. With if_exists => ''rerun'', the next run of a finished task is enqueued, with these args and times; ''replace'' also replaces the args and times of a task that has not begun; and ''follow'' also enqueues one more run behind a run that has begun. Then is_new is true. These three need the rights of taskledger.cancel to the task. A replacement defers the task at most defer_at_most after its run was enqueued, and a run is due at the earliest throttle_for after the end of the previous run. With check_archive, an archived task is returned as existing, without a position; its args are not compared. Otherwise a new task with its key is discarded before it begins.';

CREATE FUNCTION taskledger.enqueue_many(entries json) RETURNS TABLE(kind text, biz_id text, is_new boolean, state taskledger.task_state, version integer, same_args boolean, "position" bigint)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;

COMMENT ON FUNCTION taskledger.enqueue_many(entries json) IS 'Enqueues many tasks in the caller''s transaction. entries is a JSON array of objects with the arguments of taskledger.enqueue: kind, biz_id and optionally args, meta, shard, actor, run_at, run_in, start_by, finish_by, data_version, after, priority, if_exists, partition, defer_at_most, throttle_for, order_key, pass_if_dead, check_archive. Returns a row for each entry, in order, like taskledger.enqueue.';

CREATE FUNCTION taskledger.erase_salts(kind text, biz_id text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger.erase_salts(kind text, biz_id text) IS 'Replaces the salts of a task''s sealed events with digests. Call it in the transaction that erases data, meta and actor: the seal stays valid, and no guess of the text can be confirmed. Returns the number of events.';

CREATE FUNCTION taskledger.fail(kind text, biz_id text, version integer, error text, error_type text DEFAULT ''::text, retry_in interval DEFAULT NULL::interval, permanent boolean DEFAULT false, retry json DEFAULT NULL::json) RETURNS taskledger.task_state
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger.fail(kind text, biz_id text, version integer, error text, error_type text, retry_in interval, permanent boolean, retry json) IS 'Records that an attempt has failed, after its transaction was rolled back. The task is retried by its own retry policy, or else by the policy retry, or else by the default; or after retry_in. It is dead if its attempts are used up or the error is permanent. Returns the task''s state. version is from taskledger.claim. Raises TL001 if the attempt has ended meanwhile.';

CREATE FUNCTION taskledger.finish(kind text, biz_id text, version integer, result json DEFAULT NULL::json) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger.finish(kind text, biz_id text, version integer, result json) IS 'Records that an attempt has succeeded, in the transaction of its effect: both commit, or neither does. version is from taskledger.claim. Raises TL001 if the attempt has ended meanwhile, TL004 if the task''s deadline has passed.';

CREATE FUNCTION taskledger.give_subscriber(subscriber text, login text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  of_cursor text := taskledger_internal.subscriber_reader(subscriber);
  newest bigint;
  c record;
begin
  if not exists (select from pg_roles r where r.rolname = give_subscriber.login) then
    raise exception 'taskledger: invalid login %: there is no such role',
      coalesce(quote_literal(left(give_subscriber.login, 100)), 'null') using errcode = 'invalid_parameter_value';
  end if;
  newest := taskledger_internal.lock_cursor(of_cursor);
  select n.n, n.seen, n.seen_top, n.seen_bound, n.until, n.top, n.bound, n.after_position, n.mark into c
    from taskledger.cursor n where n.reader = of_cursor and n.n = newest;
  if c.n is null then
    return false;
  end if;
  if not taskledger_internal.append_cursor(of_cursor, c.n, c.seen, c.seen_top, c.seen_bound, c.until, c.top, c.bound,
                                           c.after_position, c.mark, give_subscriber.login) then
    raise exception 'taskledger: subscriber % is being moved by another session', subscriber
      using errcode = 'serialization_failure', hint = 'Try again.';
  end if;
  return true;
end
$$;

COMMENT ON FUNCTION taskledger.give_subscriber(subscriber text, login text) IS 'Gives a subscriber to another login, leaves its place, and reports whether there is such a subscriber.';

CREATE FUNCTION taskledger.heartbeat(worker text, kinds text[], lease_for interval DEFAULT '00:00:30'::interval, guarantee text DEFAULT 'exactly once'::text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  about constant json := json_build_object(
    'kinds', to_json(kinds), 'shards', 'all',
    'guarantees', case when guarantee = 'exactly once' then json_build_object()
                       else json_build_object(guarantee, to_json(kinds)) end);
begin
  perform taskledger_internal.check_actor(worker);
  if coalesce(worker, '') = '' then
    raise exception 'taskledger: invalid worker: must not be empty' using errcode = 'invalid_parameter_value';
  end if;
  perform taskledger_internal.check_key(k.kind, 'x') from unnest(kinds) k(kind);
  if lease_for is distinct from interval '0' then
    perform taskledger_internal.check_kinds(kinds);
  end if;
  if guarantee is null or guarantee not in ('exactly once', 'at least once') then
    raise exception 'taskledger: invalid guarantee %: must be exactly once or at least once', quote_nullable(guarantee)
      using errcode = 'invalid_parameter_value';
  end if;
  if lease_for = interval '0' then
    perform taskledger_internal.remove_lease('worker/' || worker);
    perform taskledger_internal.check_lease(worker, null);
    return;
  end if;
  if lease_for is null or date_part('epoch', lease_for) not between 1 and 86400 then
    raise exception 'taskledger: invalid lease_for %: must be between 1 second and 1 day', lease_for
      using errcode = 'invalid_parameter_value', hint = '0 removes the lease';
  end if;
  lease_for := date_part('epoch', lease_for) * interval '1 second';  -- without months, whose length differs
  if row_security_active('taskledger.lease') then
    perform taskledger_internal.check_lease(worker, null);
  end if;
  if not exists (
      select from taskledger.lease l
       where l.name = 'worker/' || worker and l.alive_until > clock_timestamp()
         and l.detail::jsonb - '{places,admitted}'::text[] = about::jsonb) then
    perform taskledger_internal.lock_workers(kinds); -- of two that begin at a time, one finds the other: see may_claim
  end if;
  insert into taskledger.lease as l (name, holder, alive_until, term, detail)
  values ('worker/' || worker, worker, clock_timestamp() + lease_for, lease_for, about)
      on conflict (name) do update
     set alive_until = excluded.alive_until, term = excluded.term, login = excluded.login,
         detail = case when l.alive_until > clock_timestamp()
                            and l.detail::jsonb - '{places,admitted}'::text[] = excluded.detail::jsonb
                       then l.detail else excluded.detail end;
end
$$;

COMMENT ON FUNCTION taskledger.heartbeat(worker text, kinds text[], lease_for interval, guarantee text) IS 'Renews or creates a worker''s lease. While it lasts, no other worker takes over its tasks. kinds are the kinds that it works on. guarantee is exactly once if effects commit with taskledger.finish, else at least once. A duration of 0 removes the lease. A worker''s id belongs to the login that holds its lease.';

CREATE FUNCTION taskledger.read_feed(reader text, how_many integer DEFAULT 100) RETURNS TABLE(page text, "position" bigint, kind text, biz_id text, version integer, type text, attempt integer, shard smallint, recorded_at timestamp with time zone, actor text, login text, data_version smallint, priority smallint, partition text, run integer, data json, meta json)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  of_cursor text := taskledger_internal.subscriber_reader(reader);
  incarnation text := taskledger_internal.incarnation();
  c record;
  snapshot pg_snapshot;
  last bigint;
begin
  if how_many is null or how_many not between 1 and 10000 then
    raise exception 'taskledger: invalid how_many %: must be between 1 and 10000', coalesce(how_many::text, 'null')
      using errcode = 'invalid_parameter_value';
  end if;
  perform taskledger_internal.check_window('read_feed');
  select n.n, n.seen, n.seen_top, n.seen_bound, n.until, n.top, n.bound, n.after_position, n.mark, n.login, n.is_local
    into c
    from taskledger.cursors n
   where n.reader = of_cursor
   order by n.n desc
   limit 1;
  if c.n is null then
    select 0::bigint as n, '3:3:'::pg_snapshot as seen, 0::bigint as seen_top, '3'::xid8 as seen_bound,
           null::pg_snapshot as until, null::bigint as top, null::xid8 as bound, 0::bigint as after_position,
           null::json as mark, null::text as login, true as is_local into c;
  elsif not c.is_local then
    raise exception 'taskledger: the place of subscriber % belongs to another database', reader
      using errcode = 'object_not_in_prerequisite_state', hint = 'After a restore: taskledger rebase';
  elsif c.mark ->> 'paused' = 'true' then
    return;
  end if;
  perform taskledger_internal.check_owner(reader, c.login);
  if c.until is not null then
    if incarnation is null then -- after a crash or a restore
      perform taskledger_internal.begin_incarnation();
      return; -- the next call can open a window
    end if;
    return query
    select c.n || '@' || incarnation, e.position, e.kind, e.biz_id, e.version, e.type::text, e.attempt, e.shard,
           e.recorded_at, e.actor, l.name, e.data_version, e.priority, e.partition, e.run, e.data,
           e.meta
      from taskledger_internal.feed_page(c.seen, c.seen_top, c.seen_bound, c.until, c.top, c.after_position,
                                         read_feed.how_many) e
      left join taskledger.logins l on l.id = e.login_id;
    if found then
      return;
    end if;
    c.seen := c.until; c.seen_top := c.top; c.seen_bound := c.bound;
  end if;
  snapshot := pg_current_snapshot();
  last := coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0);
  if last <= c.seen_top and not exists (
       select from taskledger_internal.late_xids(c.seen, c.seen_bound) x where pg_visible_in_snapshot(x, snapshot)) then
    return; -- an idle call writes nothing
  end if;
  if not taskledger_internal.append_cursor(of_cursor, c.n, c.seen, c.seen_top, c.seen_bound, snapshot, last,
                                           pg_current_xact_id(), 0, c.mark, coalesce(c.login, session_user)) then
    return; -- another session has opened the window
  end if;
  if incarnation is null then
    perform taskledger_internal.begin_incarnation();
    incarnation := taskledger_internal.incarnation();
  end if;
  return query
  select c.n + 1 || '@' || incarnation, e.position, e.kind, e.biz_id, e.version, e.type::text, e.attempt, e.shard,
         e.recorded_at, e.actor, l.name, e.data_version, e.priority, e.partition, e.run, e.data,
           e.meta
    from taskledger_internal.feed_page(c.seen, c.seen_top, c.seen_bound, snapshot, last, 0, read_feed.how_many) e
    left join taskledger.logins l on l.id = e.login_id;
end
$$;

COMMENT ON FUNCTION taskledger.read_feed(reader text, how_many integer) IS 'Returns the next committed events of a subscriber, in the order of the feed: none is missing, and each task''s events are in order. It returns the same events until advance_feed passes them. Call it first in a READ COMMITTED transaction, or by itself, on the primary.';

CREATE FUNCTION taskledger.release(kind text, biz_id text, reason text DEFAULT NULL::text, actor text DEFAULT NULL::text, if_version integer DEFAULT NULL::integer) RETURNS TABLE(is_changed boolean, state taskledger.task_state, version integer)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  return query
  select c.outcome = '', case when c.outcome = '' then taskledger.state_after((c.appended).type) else c.state end,
         coalesce((c.appended).version, c.version, 0)
    from taskledger_internal.change(release.kind, release.biz_id, 'released', release.if_version, release.actor,
                                    release.reason, null, null, null) c;
end
$$;

COMMENT ON FUNCTION taskledger.release(kind text, biz_id text, reason text, actor text, if_version integer) IS 'Makes a task that waits for its time, or is dead, cancelled, expired or discarded, available in the caller''s transaction. Rights and result as of taskledger.cancel.';

CREATE FUNCTION taskledger.remove_subscriber(subscriber text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform taskledger_internal.lock_cursor('subscriber/' || subscriber);
  perform taskledger_internal.remove_subscriber_state('subscriber/' || subscriber);
  perform taskledger_internal.remove_subscriber_parked('subscriber/' || subscriber, null, null);
  delete from taskledger.cursor c where c.reader = 'subscriber/' || subscriber;
  return found;
end
$$;

COMMENT ON FUNCTION taskledger.remove_subscriber(subscriber text) IS 'Removes a subscriber, and reports whether there was one. Its tables stay.';

CREATE FUNCTION taskledger.reschedule(kind text, biz_id text, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, run_in interval DEFAULT NULL::interval, priority integer DEFAULT NULL::integer, reason text DEFAULT NULL::text, actor text DEFAULT NULL::text, if_version integer DEFAULT NULL::integer) RETURNS TABLE(is_changed boolean, state taskledger.task_state, version integer)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger.reschedule(kind text, biz_id text, run_at timestamp with time zone, run_in interval, priority integer, reason text, actor text, if_version integer) IS 'Changes when a task that waits, or has not started, is due, in the caller''s transaction: at run_at, or run_in from now by the database''s clock. Or it changes its priority, which alone keeps the time. Rights and result as of taskledger.cancel.';

CREATE FUNCTION taskledger.schema_version() RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if to_regclass('taskledger.migration') is null then
    return 0;
  end if;
  return (select coalesce(max(m.version_id), 0) from taskledger.migration m where m.is_applied);
end
$$;

COMMENT ON FUNCTION taskledger.schema_version() IS 'Returns the number of the last applied migration, or 0 if they were applied without the table migration.';

CREATE FUNCTION taskledger.seek_feed(reader text, "position" bigint DEFAULT NULL::bigint, at timestamp with time zone DEFAULT NULL::timestamp with time zone, only_new boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  of_cursor text := taskledger_internal.subscriber_reader(reader);
  owner constant text := case when not has_function_privilege('taskledger.give_subscriber(text, text)', 'execute')
                           then session_user::text end; -- an operator makes it for another login
  newest bigint;
  c record;
  p record;
begin
  if "position" is not null and at is not null then
    raise exception 'taskledger: position and at must not both be given' using errcode = 'invalid_parameter_value';
  elsif at > clock_timestamp() then
    raise exception 'taskledger: invalid time %: must not be in the future', at
      using errcode = 'invalid_parameter_value';
  end if;
  perform taskledger_internal.check_window('seek_feed');
  if only_new and exists (select from taskledger.cursor n where n.reader = of_cursor) then
    return false;
  end if;
  if "position" = 0 then
    select '3:3:'::pg_snapshot as seen, 0::bigint as seen_top, '3'::xid8 as seen_bound, null::pg_snapshot as until,
           null::bigint as top, 0::bigint as after_position, null::xid8 as bound into p;
  elsif "position" is not null then
    select * into p from taskledger_internal.place(null, seek_feed.position);
    if p.seen is null then
      raise exception 'taskledger: invalid position %: no event has it', "position"
        using errcode = 'TL006', hint = 'An event that was archived or never committed cannot be a place.';
    end if;
  elsif at is not null then
    select * into p from taskledger_internal.place(seek_feed.at, null);
  else
    select pg_current_snapshot() as seen, null::bigint as seen_top, null::xid8 as seen_bound,
           null::pg_snapshot as until, null::bigint as top, 0::bigint as after_position, null::xid8 as bound into p;
    p.seen_top := coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0);
    p.seen_bound := pg_current_xact_id();
  end if;
  if p.until is not null and p.bound is null then
    p.top := greatest(p.top, coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0));
    p.bound := pg_current_xact_id();
  end if;
  newest := taskledger_internal.lock_cursor(of_cursor);
  if only_new and newest is not null then
    return false;
  end if;
  if newest is not null and taskledger_internal.has_tables(of_cursor) then
    raise exception 'taskledger: subscriber % has tables, which a move would make wrong', reader
      using errcode = 'object_not_in_prerequisite_state',
            hint = 'taskledger rebuild tables NAME; to leave out an event: taskledger discard parked --subscriber';
  end if;
  select n.n, n.mark, n.login into c from taskledger.cursor n where n.reader = of_cursor and n.n = newest;
  if not taskledger_internal.append_cursor(of_cursor, coalesce(c.n, 0), p.seen, p.seen_top, p.seen_bound, p.until,
                                           p.top, p.bound, p.after_position, c.mark, coalesce(c.login, owner)) then
    raise exception 'taskledger: subscriber % is being moved by another session', reader
      using errcode = 'serialization_failure', hint = 'Try again.';
  end if;
  return true;
end
$$;

COMMENT ON FUNCTION taskledger.seek_feed(reader text, "position" bigint, at timestamp with time zone, only_new boolean) IS 'Moves a subscriber to after the event at a position (0: the beginning), to a time, or to the present, and makes it if it is missing. With only_new it does not move an existing subscriber, and returns false.';

CREATE FUNCTION taskledger.shard_of(biz_id text) RETURNS smallint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN (((((('x'::text || substr(md5(biz_id), 1, 8)))::bit(32))::bigint & '4294967295'::bigint) % (64)::bigint))::smallint;

COMMENT ON FUNCTION taskledger.shard_of(biz_id text) IS 'Returns the default shard of a task, 0 to 63: the first 32 bits of md5(biz_id), modulo 64.';

CREATE FUNCTION taskledger.snooze(kind text, biz_id text, version integer, run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, run_in interval DEFAULT NULL::interval) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger.snooze(kind text, biz_id text, version integer, run_at timestamp with time zone, run_in interval) IS 'Ends an attempt without a failure. The task is available again at run_at, or after run_in by the database''s clock. From the second in a row on, a snooze that is due at once waits by the retry policy. version is from taskledger.claim. Raises TL001 if the attempt has ended meanwhile.';

CREATE FUNCTION taskledger.state_after(type taskledger.event_type) RETURNS taskledger.task_state
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE type WHEN 'enqueued'::taskledger.event_type THEN 'available'::taskledger.task_state WHEN 'scheduled'::taskledger.event_type THEN 'scheduled'::taskledger.task_state WHEN 'lined_up'::taskledger.event_type THEN 'in_line'::taskledger.task_state WHEN 'released'::taskledger.event_type THEN 'available'::taskledger.task_state WHEN 'started'::taskledger.event_type THEN 'running'::taskledger.task_state WHEN 'progressed'::taskledger.event_type THEN 'running'::taskledger.task_state WHEN 'succeeded'::taskledger.event_type THEN 'succeeded'::taskledger.task_state WHEN 'failed'::taskledger.event_type THEN 'retrying'::taskledger.task_state WHEN 'interrupted'::taskledger.event_type THEN 'available'::taskledger.task_state WHEN 'snoozed'::taskledger.event_type THEN 'scheduled'::taskledger.task_state WHEN 'buried'::taskledger.event_type THEN 'dead'::taskledger.task_state WHEN 'cancelled'::taskledger.event_type THEN 'cancelled'::taskledger.task_state WHEN 'expired'::taskledger.event_type THEN 'expired'::taskledger.task_state WHEN 'discarded'::taskledger.event_type THEN 'discarded'::taskledger.task_state ELSE NULL::taskledger.task_state END;

COMMENT ON FUNCTION taskledger.state_after(type taskledger.event_type) IS 'Returns the state of a task whose last event has this type.';

CREATE FUNCTION taskledger_internal.admits(kind text, args_bytes integer, meta_bytes integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.admits(kind text, args_bytes integer, meta_bytes integer) IS 'Reports whether a task of this kind, with args and meta of these sizes, may be enqueued as available.';

CREATE FUNCTION taskledger_internal.advance_lines(order_keys text[]) RETURNS TABLE(kind text, biz_id text, version integer, "position" bigint, recorded_at timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
begin
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'taskledger: advance_lines needs a READ COMMITTED transaction'
      using errcode = 'active_sql_transaction';
  end if;
  lock table taskledger.mutex in share row exclusive mode;
  if pg_current_xact_id_if_assigned() is not null then
    raise exception 'taskledger: advance_lines must be the first statement of its transaction that writes'
      using errcode = 'active_sql_transaction';
  end if;
  return query
  with line as materialized (
    select t.*, not t.resumes and t.seen is not null as has_late
      from taskledger_internal.line_turns(array(select distinct k from unnest(advance_lines.order_keys) k)) t
     where not t.is_held
  ), late as materialized ( -- transactions that a search did not see and that have lined up tasks since
    select g.order_keys, g.places, x.xid
      from (
        select l.seen, l.bound, array_agg(l.order_key) as order_keys, array_agg(l.place) as places
          from line l
         where l.has_late
         group by l.seen, l.bound) g
     cross join lateral (
        select pg_snapshot_xip(g.seen::pg_snapshot) as xid
         union all
        select s::text::xid8
          from generate_series(pg_snapshot_xmax(g.seen::pg_snapshot)::text::bigint, g.bound::bigint - 1) s) x
     cross join lateral ( -- limit: a semi-join would read the ledger
        select from taskledger.event e where e.type = 'lined_up' and e.xid = x.xid limit 1) e
  ), candidate as materialized (
    select l.order_key, l.kind, l.biz_id, l.head as version, l.attempt, l.shard, l.priority, l.partition, l.place,
           l.seen, l.bound, l.place as position
      from line l
     where l.resumes
     union all
    select l.order_key, n.kind, n.biz_id, n.version, n.attempt, n.shard, n.priority, n.partition, n.position,
           null, null, n.position
      from line l
     cross join lateral (
       select e.kind, e.biz_id, e.version, e.attempt, e.shard, e.priority, e.partition, e.position
         from taskledger.event e
        where e.order_key = l.order_key and e.type = 'lined_up' and e.position > l.place
           and (e.version > 1 or taskledger_internal.archived_version(e.kind, e.biz_id) is null)
          and not exists (
            select from taskledger.event a
             where a.kind = e.kind and a.biz_id = e.biz_id and a.version = e.version + 1)
        order by e.position
        limit 1) n
     where not l.resumes
     union all
    select l.order_key, n.kind, n.biz_id, n.version, n.attempt, n.shard, n.priority, n.partition, n.position,
           null, null, n.position
      from late
     cross join lateral unnest(late.order_keys, late.places) l(order_key, place)
     cross join lateral (
       select e.kind, e.biz_id, e.version, e.attempt, e.shard, e.priority, e.partition, e.position
         from taskledger.event e
        where e.type = 'lined_up' and e.xid = late.xid and e.order_key = l.order_key and e.position < l.place
           and (e.version > 1 or taskledger_internal.archived_version(e.kind, e.biz_id) is null)
          and not exists (
            select from taskledger.event a
             where a.kind = e.kind and a.biz_id = e.biz_id and a.version = e.version + 1)
        order by e.position
        limit 1) n
  ), next as materialized (
    select distinct on (c.order_key) c.* from candidate c order by c.order_key, c.position
  ), tx as materialized (
    select pg_current_snapshot() as seen, pg_current_xact_id() as xid,
           coalesce((select l.id from taskledger.logins l where l.name = session_user limit 1),
                    taskledger_internal.login_id()) as login_id, taskledger_internal.wake()
     where exists (select from next)
  ), added as (
    insert into taskledger.event (xid, version, attempt, shard, type, login_id, priority, partition, kind, biz_id,
                                  order_key, actor, data)
    select tx.xid, n.version + 1, n.attempt, n.shard, 'released', tx.login_id, n.priority, n.partition,
           n.kind, n.biz_id, n.order_key, 'scheduler',
           ('{"reason":"turn","place":' || n.place || ',"seen":"' || coalesce(n.seen, tx.seen::text)
             || '","bound":"' || coalesce(n.bound, tx.xid::text) || '"}')::json
      from tx cross join next n
     order by n.kind, n.biz_id
        on conflict (kind, biz_id, version) do nothing
    returning kind, biz_id, version, position, recorded_at
  )
  select a.* from added a;
end
$$;

COMMENT ON FUNCTION taskledger_internal.advance_lines(order_keys text[]) IS 'Makes the next task of each of these lines available, unless it is another task''s turn. Returns the events of these turns. It must be the first statement of a READ COMMITTED transaction that writes.';

CREATE FUNCTION taskledger_internal.append_cursor(reader text, n bigint, seen pg_snapshot, seen_top bigint, seen_bound xid8, until pg_snapshot, top bigint, bound xid8, after_position bigint, mark json, login text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, until, top, bound, after_position, origin,
                                 mark, login)
  select append_cursor.reader, append_cursor.n + 1, append_cursor.seen, append_cursor.seen_top,
         append_cursor.seen_bound, append_cursor.until, append_cursor.top, append_cursor.bound,
         append_cursor.after_position, taskledger_internal.origin(), append_cursor.mark,
         append_cursor.login
    from (
     select coalesce((select c.n
                        from taskledger.cursor c
                       where c.reader = append_cursor.reader
                       order by c.n desc
                       limit 1
                         for key share), 0) as n) newest
   where newest.n = append_cursor.n
      on conflict do nothing;
  if found and append_cursor.n % 1000 = 0 then
    perform taskledger_internal.thin_cursor(append_cursor.reader, append_cursor.n - 10000);
  elsif not found then
    perform taskledger_internal.check_owner(substr(c.reader, 12), c.login)
       from (select m.reader, m.n, m.login from taskledger.cursor m where m.reader = append_cursor.reader
              order by m.n desc limit 1) c
      where c.n = append_cursor.n;
    return false;
  end if;
  return true;
end
$$;

COMMENT ON FUNCTION taskledger_internal.append_cursor(reader text, n bigint, seen pg_snapshot, seen_top bigint, seen_bound xid8, until pg_snapshot, top bigint, bound xid8, after_position bigint, mark json, login text) IS 'Appends cursor row n + 1 of a reader if row n is its newest, and reports whether it did.';

CREATE FUNCTION taskledger_internal.append_event(kind text, biz_id text, expected integer, type taskledger.event_type, actor text, data text, after_us bigint DEFAULT NULL::bigint, at timestamp with time zone DEFAULT NULL::timestamp with time zone, priority integer DEFAULT NULL::integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.append_event(kind text, biz_id text, expected integer, type taskledger.event_type, actor text, data text, after_us bigint, at timestamp with time zone, priority integer) IS 'Appends an event after version expected and returns its version; null if the task has moved on. It is released after after_us microseconds or at a time, which is stored in data and in the timer. A null priority keeps the task''s.';

CREATE FUNCTION taskledger_internal.append_run(kind text, biz_id text, expected integer, shard smallint, run integer, args text, meta text, actor text, data_version integer, priority integer, partition text, order_key text, login_id integer, due timestamp with time zone, start_by timestamp with time zone, finish_by timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.append_run(kind text, biz_id text, expected integer, shard smallint, run integer, args text, meta text, actor text, data_version integer, priority integer, partition text, order_key text, login_id integer, due timestamp with time zone, start_by timestamp with time zone, finish_by timestamp with time zone) IS 'Appends an event with args: the beginning of a run, or other args of a run. Returns its position; null if the task has moved on.';

CREATE FUNCTION taskledger_internal.appended_here(kind text, biz_id text, version integer) RETURNS taskledger.event_type
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return (
    select e.type
      from taskledger.event e
     where e.kind = appended_here.kind and e.biz_id = appended_here.biz_id and e.version = appended_here.version
       and e.xid = pg_current_xact_id_if_assigned() and age(e.xmin) <= 0
       and e.position > (select f.foreign_until from taskledger_internal.floors f));
end
$$;

COMMENT ON FUNCTION taskledger_internal.appended_here(kind text, biz_id text, version integer) IS 'Returns the type of an event if the calling transaction has inserted it, else null.';

CREATE FUNCTION taskledger_internal.archivable(run integer, kinds text[], except_kinds text[], hold interval, after bigint, how_many integer, OUT task_kinds text[], OUT biz_ids text[], OUT versions integer[], OUT events integer, OUT last bigint, OUT last_at timestamp with time zone, OUT held integer, OUT held_by text, OUT held_since timestamp with time zone) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.archivable(run integer, kinds text[], except_kinds text[], hold interval, after bigint, how_many integer, OUT task_kinds text[], OUT biz_ids text[], OUT versions integer[], OUT events integer, OUT last bigint, OUT last_at timestamp with time zone, OUT held integer, OUT held_by text, OUT held_since timestamp with time zone) IS 'Returns the tasks that a run of the archive may remove, among the how_many next events after a position: of all kinds, or of some, except others. Also how many events it has read, position and time of the last, and how many tasks readers of the feed hold, one of these readers, and the earliest end of the tasks.';

CREATE FUNCTION taskledger_internal.archive_places() RETURNS TABLE(place text, has_volumes boolean)
    LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;

COMMENT ON FUNCTION taskledger_internal.archive_places() IS 'Returns the archives to which runs may have stored tasks, and whether they have.';

CREATE FUNCTION taskledger_internal.archive_state(OUT ended_at timestamp with time zone, OUT cutoff timestamp with time zone, OUT tasks bigint, OUT held bigint, OUT held_by text, OUT held_since timestamp with time zone, OUT unfinished_since timestamp with time zone, OUT removed_at timestamp with time zone) RETURNS record
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.archive_state(OUT ended_at timestamp with time zone, OUT cutoff timestamp with time zone, OUT tasks bigint, OUT held bigint, OUT held_by text, OUT held_since timestamp with time zone, OUT unfinished_since timestamp with time zone, OUT removed_at timestamp with time zone) IS 'Returns when the last run of the archive has ended, the moment before which tasks must have ended, how many tasks it has removed and readers of the feed hold, one of these readers, and the earliest end of the tasks; since when runs have begun and not ended, and when a batch was last removed.';

CREATE FUNCTION taskledger_internal.archive_tally(OUT events bigint, OUT positions_xor bigint, OUT until bigint) RETURNS record
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  select coalesce(sum(b.events), 0)::bigint, coalesce(bit_xor(b.positions_xor), 0)
    into events, positions_xor
    from taskledger.archive_batch b
   where b.is_sealed;
  until := taskledger_internal.archived_until();
end
$$;

COMMENT ON FUNCTION taskledger_internal.archive_tally(OUT events bigint, OUT positions_xor bigint, OUT until bigint) IS 'Returns the number of sealed events that the archive has removed, the exclusive or of their positions, and a position that none of them is above.';

CREATE FUNCTION taskledger_internal.archive_waits(run integer) RETURNS TABLE(pid integer, login text, since timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.archive_waits(run integer) IS 'Returns the sessions whose transactions are older than a run of the archive, for which it waits.';

CREATE FUNCTION taskledger_internal.archived_before() RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return greatest((select max(r.cutoff) from taskledger.archive_run r),
                  (select max(x.last_at) from taskledger.erasure x));
end
$$;

COMMENT ON FUNCTION taskledger_internal.archived_before() IS 'Returns a moment after the ends of all archived tasks, and not before the last erased event; null: neither exists.';

CREATE FUNCTION taskledger_internal.archived_beyond(seen pg_snapshot, kinds text[]) RETURNS TABLE(file text, events bigint, first_position bigint, last_position bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.archived_beyond(seen pg_snapshot, kinds text[]) IS 'Returns the archived events of some kinds, null for all, that a snapshot may not see: their files, null for none, their number, and the first and the last position.';

CREATE FUNCTION taskledger_internal.archived_keys(kinds text[], biz_ids text[]) RETURNS TABLE(n bigint, version integer, state taskledger.task_state, archived_at timestamp with time zone, file text, erased_until bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.archived_keys(kinds text[], biz_ids text[]) IS 'Returns the archived keys among some, by their numbers from 1: the last version and state of the task, when it was removed, the file that contains it, and the position up to which its events are erased, 0 if they are not.';

CREATE FUNCTION taskledger_internal.archived_tasks(kind text, state taskledger.task_state) RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return coalesce((
    select b.total
      from taskledger.archive_batch b
     where b.kind = archived_tasks.kind and b.state = archived_tasks.state
     order by b.id desc
     limit 1), 0);
end
$$;

COMMENT ON FUNCTION taskledger_internal.archived_tasks(kind text, state taskledger.task_state) IS 'Returns how many tasks of a kind and state were archived.';

CREATE FUNCTION taskledger_internal.archived_totals() RETURNS TABLE(kind text, state taskledger.task_state, tasks bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.archived_totals() IS 'Returns how many tasks of each kind and state were archived.';

CREATE SEQUENCE taskledger.archived_until
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

COMMENT ON SEQUENCE taskledger.archived_until IS 'Internal: a position that is above no event of a removed task; never called: no task was removed.';

CREATE FUNCTION taskledger_internal.archived_until() RETURNS bigint
    LANGUAGE sql
    RETURN COALESCE(pg_sequence_last_value('taskledger.archived_until'::regclass), (0)::bigint);

COMMENT ON FUNCTION taskledger_internal.archived_until() IS 'Returns a position that no event of a removed task is above; 0: no task was removed.';

CREATE FUNCTION taskledger_internal.archived_version(kind text, biz_id text) RETURNS integer
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.archived_version(kind text, biz_id text) IS 'Returns the last version of the archived task with this key; null if none was archived.';

CREATE FUNCTION taskledger_internal.args_version(kind text, biz_id text) RETURNS integer
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return coalesce((
    select e.version
      from taskledger.event e
     where e.kind = args_version.kind and e.biz_id = args_version.biz_id and e.run is not null
     order by e.version desc
     limit 1), 1);
end
$$;

COMMENT ON FUNCTION taskledger_internal.args_version(kind text, biz_id text) IS 'Returns the version of the event that contains the args of a task.';

CREATE FUNCTION taskledger_internal.ask_subscriber(subscriber text, work text) RETURNS SETOF integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if work = 'rebuild' then
    perform taskledger_internal.check_recorded('subscriber.rebuild', subscriber);
  elsif work <> 'verify' then
    raise exception 'taskledger: work must be rebuild or verify, got %', work using errcode = 'invalid_parameter_value';
  end if;
  return query
  update taskledger.subscriber_state p
     set wanted = ask_subscriber.work
   where p.reader = 'subscriber/' || ask_subscriber.subscriber
  returning p.version;
end
$$;

COMMENT ON FUNCTION taskledger_internal.ask_subscriber(subscriber text, work text) IS 'Asks the program of a subscriber for a rebuild or a verification, and returns the version of the tables; no row if the subscriber is not registered.';

CREATE FUNCTION taskledger_internal.attempt_of(kind text, biz_id text, version integer, OUT worker text, OUT number integer, OUT data text) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.attempt_of(kind text, biz_id text, version integer, OUT worker text, OUT number integer, OUT data text) IS 'Returns the worker of an attempt that runs, its number and the members that the data of its outcome begins with; raises TL001 if the attempt has ended.';

CREATE FUNCTION taskledger_internal.audit_cursors() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  most constant integer := 1000000;
  c record;
  tally record;
  cursors integer := 0;
begin
  for c in
    select n.reader, n.n, n.audited, n.seen, n.unaudited, n.unaudited_xor
      from (select distinct on (r.reader) r.* from taskledger.cursor r order by r.reader, r.n desc) n
      join taskledger.cursors v on v.reader = n.reader and v.n = n.n
     where n.audited is not null and n.until is null and v.is_local and n.reader not in ('seal', 'line')
  loop
    select t.entries, t.events, t.positions into tally
      from taskledger_internal.feed_tally(c.audited, c.seen, most, '0', 0) t;
    if tally.entries < most and (
         tally.events = c.unaudited and tally.positions = c.unaudited_xor
         or tally.events < c.unaudited
            and exists (select from taskledger_internal.archived_beyond(c.audited, null))) then
      update taskledger.cursor u
         set audited = null, unaudited = 0, unaudited_xor = 0, xid = pg_current_xact_id()
       where u.reader = c.reader and u.n = c.n;
      cursors := cursors + 1;
    end if;
  end loop;
  return cursors;
end
$$;

COMMENT ON FUNCTION taskledger_internal.audit_cursors() IS 'Audits the events that readers of the feed have read and not audited, by their newest cursor rows, and records it. Returns the number of cursors whose events it found.';

CREATE FUNCTION taskledger_internal.await_outcomes(microseconds bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  longest constant bigint := 60000000;
  now constant bigint := date_part('epoch', clock_timestamp()) * 1e6;
  until constant bigint := pg_sequence_last_value('taskledger.awaited_until');
begin
  perform setval('taskledger.awaited_until', greatest(
    case when until <= now + longest then until end, now + least(greatest(microseconds, 0), longest)));
end
$$;

COMMENT ON FUNCTION taskledger_internal.await_outcomes(microseconds bigint) IS 'Makes appends of events wake the relay for this time, at most a minute.';

CREATE FUNCTION taskledger_internal.begin_archive(older_than interval, place text, OUT run integer, OUT cutoff timestamp with time zone) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.begin_archive(older_than interval, place text, OUT run integer, OUT cutoff timestamp with time zone) IS 'Begins a run of the archive, for tasks that ended longer ago than older_than. place: the archive, null for none. Returns its id and the moment.';

CREATE FUNCTION taskledger_internal.begin_attempts(kinds text[], biz_ids text[], versions integer[], attempts integer[], actor text) RETURNS integer[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '10ms'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_variable
declare
  l record;
  start integer;
  starts integer[];
  firsts integer[];
  full_limit text;
  full_limits text[] := '{}';
  granted integer[] := '{}';
begin
  perform taskledger_internal.check_kinds(array(select distinct k.kind from unnest(kinds) k(kind)), true);
  if current_setting('transaction_isolation') <> 'read committed' then
    return granted; -- its snapshot may lack a limit
  end if;
  starts := array(
    select s.i
      from unnest(kinds, biz_ids, versions, attempts) with ordinality s(kind, biz_id, version, attempt, i)
     cross join lateral (
       select e.type, e.version, e.attempt
         from taskledger.event e
        where e.kind = s.kind and e.biz_id = s.biz_id
        order by e.version desc
        limit 1) h
     where h.version = s.version and h.attempt = s.attempt - 1 and h.type in ('enqueued', 'released', 'interrupted')
       and s.kind in (
         select k.kind
           from taskledger.limited_kind k
           join taskledger.start_limit m on m.name = k.name
          group by k.kind
         having bool_and(m.rate is null and m.per is null))
     order by s.i);
  firsts := array(select v + 1 from unnest(versions) with ordinality u(v, i) order by u.i);
  begin
    for l in
      select m.name, m.max_running, array_agg(s.i order by s.i) as starts
        from unnest(starts) s(i)
        join taskledger.limited_kind k on k.kind = kinds[s.i]
        join taskledger.start_limit m on m.name = k.name
       group by m.name, m.max_running
       order by m.name
    loop
      if exists (select from taskledger.permit p where p.name = l.name and p.value = '' and p.slot > l.max_running)
          or taskledger_internal.take_permits_at_once(l.name, '', false, l.max_running, kinds, biz_ids, firsts,
                                                      null, actor, l.starts) <> '{}' then
        raise sqlstate 'TL008'; -- gives the permits back
      end if;
    end loop;
    return starts;
  exception when sqlstate 'TL008' or lock_not_available then
    null;
  end;
  foreach start in array starts loop
    begin
      for l in
        select m.name, m.max_running
          from taskledger.limited_kind k
          join taskledger.start_limit m on m.name = k.name
         where k.kind = kinds[start]
         order by m.name
      loop
        if not taskledger_internal.keep_own_permit(l.name, kinds[start], biz_ids[start], firsts[start], null,
                                                   actor) then
          full_limit := l.name;
          if l.name = any (full_limits) then
            raise sqlstate 'TL008';
          end if;
          perform taskledger_internal.take_permit(l.name, '', false, l.max_running, null, kinds[start], biz_ids[start],
                                                  firsts[start], null, actor);
        end if;
        full_limit := null;
      end loop;
      granted := granted || start;
    exception
      when sqlstate 'TL008' then
        full_limits := array_append(full_limits, full_limit);
      when lock_not_available then
        null;
    end;
  end loop;
  return granted;
end
$$;

COMMENT ON FUNCTION taskledger_internal.begin_attempts(kinds text[], biz_ids text[], versions integer[], attempts integer[], actor text) IS 'Takes the permits of attempts that a worker is about to begin, before their starts are recorded. versions: of the last events that the worker has seen. Returns the numbers of the attempts, from 1, that hold all their permits.';

CREATE FUNCTION taskledger_internal.begin_import(ids integer[], names text[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  taken record;
begin
  lock table taskledger.event, taskledger.login in share row exclusive mode;
  if exists (select from taskledger.event) then
    raise exception 'taskledger: the ledger is not empty' using errcode = 'object_not_in_prerequisite_state',
      hint = 'import into a new database, after taskledger migrate and before anything else';
  end if;
  select l.id, l.name, n.name as wanted into taken
    from unnest(begin_import.ids, begin_import.names) n(id, name)
    join taskledger.login l on l.id = n.id and l.name <> n.name
   limit 1;
  if found then
    raise exception 'taskledger: login id % is of % here, and of % in the files', taken.id, taken.name, taken.wanted
      using errcode = 'object_not_in_prerequisite_state',
            hint = 'import into a new database, after taskledger migrate and before anything else';
  end if;
  insert into taskledger.login (id, name) overriding system value
  select n.id, n.name from unnest(begin_import.ids, begin_import.names) n(id, name)
      on conflict (id) do nothing;
end
$$;

COMMENT ON FUNCTION taskledger_internal.begin_import(ids integer[], names text[]) IS 'Locks an empty ledger for an import until the transaction ends, and adds the logins of its events.';

CREATE FUNCTION taskledger_internal.begin_incarnation() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  insert into taskledger.incarnation as i default values
      on conflict (one) do update set id = excluded.id, of_table = excluded.of_table
   where i.of_table <> excluded.of_table;
end
$$;

COMMENT ON FUNCTION taskledger_internal.begin_incarnation() IS 'Gives the database an incarnation if it lacks one.';

CREATE FUNCTION taskledger_internal.begin_next(kind text, biz_id text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.begin_next(kind text, biz_id text) IS 'Begins the run that waits behind the last run of a task, if that has finished. Returns whether no run waits any more.';

CREATE FUNCTION taskledger_internal.begins_attempt(type taskledger.event_type, last taskledger.event_type) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((type = 'started'::taskledger.event_type) OR ((type = ANY (ARRAY['progressed'::taskledger.event_type, 'succeeded'::taskledger.event_type, 'failed'::taskledger.event_type, 'interrupted'::taskledger.event_type, 'snoozed'::taskledger.event_type])) AND (last = ANY (ARRAY['enqueued'::taskledger.event_type, 'released'::taskledger.event_type, 'interrupted'::taskledger.event_type]))));

COMMENT ON FUNCTION taskledger_internal.begins_attempt(type taskledger.event_type, last taskledger.event_type) IS 'Returns whether an event of type that follows one of type last belongs to a new attempt.';

CREATE FUNCTION taskledger_internal.bound_leases() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  update taskledger.lease l
     set alive_until = clock_timestamp() + l.term
   where l.name in (
     select d.name from taskledger.lease d where d.alive_until > clock_timestamp() + d.term for update skip locked);
end
$$;

COMMENT ON FUNCTION taskledger_internal.bound_leases() IS 'Makes leases that were taken before the clock was set back end after one more term.';

CREATE FUNCTION taskledger_internal.login_id() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  found_id integer;
  is_older boolean;
begin
  select l.id, l.since < now() into found_id, is_older from taskledger.login l where l.name = session_user limit 1;
  if found_id is null then
    insert into taskledger.login (name) values (session_user) returning id into found_id;
  elsif is_older then
    perform set_config('taskledger.login_id', found_id::text, false),
            set_config('taskledger.login', session_user, false);
  end if;
  return found_id;
end
$$;

COMMENT ON FUNCTION taskledger_internal.login_id() IS 'Returns the id of the session''s login, which it adds to the table login if it is not there.';

CREATE FUNCTION taskledger_internal.session_login() RETURNS integer
    LANGUAGE sql
    RETURN CASE WHEN (current_setting('taskledger.login'::text, true) = SESSION_USER) THEN (current_setting('taskledger.login_id'::text, true))::integer ELSE taskledger_internal.login_id() END;

COMMENT ON FUNCTION taskledger_internal.session_login() IS 'Returns the id of the session''s login from the session''s note, else from login_id.';

CREATE TABLE taskledger.event (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    "position" bigint NOT NULL,
    recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    version integer NOT NULL,
    attempt integer NOT NULL,
    type taskledger.event_type NOT NULL,
    login_id integer DEFAULT taskledger_internal.session_login() NOT NULL,
    run integer,
    shard smallint NOT NULL,
    data_version smallint DEFAULT 1 NOT NULL,
    priority smallint DEFAULT 0 NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    biz_id text NOT NULL COLLATE pg_catalog."C",
    actor text,
    order_key text COLLATE pg_catalog."C",
    partition text COLLATE pg_catalog."C",
    data json,
    meta json,
    CONSTRAINT event_partition_check CHECK ((((octet_length(partition) >= 1) AND (octet_length(partition) <= 64)) AND (partition !~ '[\u0001-\u001f\u007f-\u009f]'::text))),
    CONSTRAINT event_priority_check CHECK (((priority >= 0) AND (priority <= 4)))
)
WITH (autovacuum_vacuum_insert_scale_factor='0.01', autovacuum_freeze_min_age='0');

COMMENT ON TABLE taskledger.event IS 'The ledger: one row for each event of a task (kind, biz_id), numbered by version. Rows are appended and never changed. The archive removes finished tasks, as a whole; an erasure removes data, meta and actor.';

COMMENT ON COLUMN taskledger.event.login_id IS 'The database login (session_user) of the session that wrote the event: an id of the view logins.';

COMMENT ON COLUMN taskledger.event.run IS 'The number of the run whose args are in data, if the event begins a later run of the task or replaces its args; null for other events. Version 1 begins run 1.';

COMMENT ON COLUMN taskledger.event.data_version IS 'The version of the format of data, for programs that read old events. The producer chooses it for args.';

COMMENT ON COLUMN taskledger.event.priority IS 'The task''s priority from this event on: 1 urgent, 2 high, 3 normal, 4 low; 0: none was given, which means normal. Each event copies it from the event before, unless an operator reschedules the task with another, or the event begins a later run or replaces args.';

COMMENT ON COLUMN taskledger.event.actor IS 'The author of the event, as its writer claims. login_id is recorded by the database.';

COMMENT ON COLUMN taskledger.event.order_key IS 'The line in which the task stands: of the tasks with this order key, one begins after the other has ended. Null: it stands in none. Each event copies it from the event before, unless it begins a later run.';

COMMENT ON COLUMN taskledger.event.partition IS 'The tenant or other group to which the task belongs, 1 to 64 bytes; null: none. The partitions of a kind take turns. Each event copies it from the event before, unless it begins a later run or replaces args.';

CREATE FUNCTION taskledger_internal.change(kind text, biz_id text, type taskledger.event_type, expected integer, actor text, reason text, after_us bigint, at timestamp with time zone, priority integer) RETURNS TABLE(outcome text, state taskledger.task_state, version integer, appended taskledger.event)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.change(kind text, biz_id text, type taskledger.event_type, expected integer, actor text, reason text, after_us bigint, at timestamp with time zone, priority integer) IS 'Changes a task with the rights of the caller''s role: see change_task.';

CREATE FUNCTION taskledger_internal.change_own_task(kind text, biz_id text, type taskledger.event_type, expected integer, actor text, reason text, after_us bigint, at timestamp with time zone, priority integer) RETURNS TABLE(outcome text, state taskledger.task_state, version integer, appended taskledger.event)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.change_own_task(kind text, biz_id text, type taskledger.event_type, expected integer, actor text, reason text, after_us bigint, at timestamp with time zone, priority integer) IS 'change_task for the login that has enqueued the task.';

CREATE FUNCTION taskledger_internal.change_task(kind text, biz_id text, type taskledger.event_type, expected integer, actor text, reason text, after_us bigint, at timestamp with time zone, priority integer, of_login boolean) RETURNS TABLE(outcome text, state taskledger.task_state, version integer, appended taskledger.event)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.change_task(kind text, biz_id text, type taskledger.event_type, expected integer, actor text, reason text, after_us bigint, at timestamp with time zone, priority integer, of_login boolean) IS 'Appends a change of a task at version expected (null: any). outcome is empty, or the reason why nothing was written; state and version are those before the change; appended is the event.';

CREATE FUNCTION taskledger_internal.check_actor(actor text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if octet_length(actor) > 255 or actor ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'taskledger: invalid actor %', quote_literal(left(actor, 260))
      using errcode = 'invalid_parameter_value',
            hint = 'an actor must be at most 255 bytes of UTF-8 without control characters';
  end if;
  if starts_with(actor, 'schedule/') then
    raise exception 'taskledger: invalid actor %', quote_literal(actor)
      using errcode = 'invalid_parameter_value',
            hint = 'actors that begin with schedule/ are reserved for the firings of schedules';
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_actor(actor text) IS 'Raises an error for an actor that package ledger rejects.';

CREATE FUNCTION taskledger_internal.check_after(after json, kind text, biz_id text) RETURNS json
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  most constant integer := 100;
  fault text;
  entry record;
  keys json[];
begin
  if after is null or json_typeof(after) = 'null' then
    return null;
  end if;
  if json_typeof(after) <> 'object' or json_typeof(after -> 'keys') is distinct from 'array' then
    fault := 'must be a JSON object with an array of keys';
  elsif exists (select from json_object_keys(after) m(name) where m.name not in ('keys', 'otherwise')) then
    fault := 'must have no members but keys and otherwise';
  elsif json_array_length(after -> 'keys') not between 1 and most then
    fault := 'must have 1 to ' || most || ' keys, got ' || json_array_length(after -> 'keys');
  elsif coalesce(after ->> 'otherwise', 'cancel') not in ('cancel', 'run', 'wait') then
    fault := 'otherwise must be cancel, run or wait';
  else
    for entry in
      select json_typeof(k.v) as type, case when json_typeof(k.v) = 'object' then k.v end as v
        from json_array_elements(after -> 'keys') k(v)
    loop
      if entry.type <> 'object' or coalesce(octet_length(entry.v ->> 'kind'), 0) not between 1 and 128
          or coalesce(octet_length(entry.v ->> 'biz_id'), 0) not between 1 and 255 then
        fault := 'each key must be an object with kind and biz_id';
      elsif entry.v ->> 'kind' = check_after.kind and entry.v ->> 'biz_id' = check_after.biz_id then
        fault := 'must not contain the task itself';
      end if;
      exit when fault is not null;
      keys := keys || json_build_object('kind', entry.v ->> 'kind', 'biz_id', entry.v ->> 'biz_id');
    end loop;
  end if;
  if fault is not null then
    raise exception 'taskledger: invalid after: %', fault
      using errcode = 'invalid_parameter_value',
            hint = 'for example {"keys":[{"kind":"coupon.send","biz_id":"order-17"}],"otherwise":"cancel"}';
  end if;
  return json_build_object('keys', array_to_json(keys), 'otherwise', coalesce(after ->> 'otherwise', 'cancel'));
exception when untranslatable_character or invalid_text_representation then
  raise exception 'taskledger: invalid after: %', sqlerrm using errcode = 'invalid_parameter_value';
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_after(after json, kind text, biz_id text) IS 'Returns the predecessors of a task as its meta contains them; raises an error for predecessors that package ledger rejects.';

CREATE FUNCTION taskledger_internal.check_author(author integer, kind text, biz_id text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.check_author(author integer, kind text, biz_id text) IS 'Raises an error unless author is the id of the session''s login, or of a login whose member it is.';

CREATE FUNCTION taskledger_internal.check_change(type taskledger.event_type, actor text, reason text, after_us bigint, at timestamp with time zone, priority integer) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.check_change(type taskledger.event_type, actor text, reason text, after_us bigint, at timestamp with time zone, priority integer) IS 'Raises an error for an argument of a change that package ledger rejects.';

CREATE FUNCTION taskledger_internal.check_erasure() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.check_erasure() IS 'The trigger that lets an erasure alone change events.';

CREATE FUNCTION taskledger_internal.check_existing(kind text, biz_id text, args text, accepts_other_args boolean) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.check_existing(kind text, biz_id text, args text, accepts_other_args boolean) IS 'Raises not_null_violation unless the task exists, and with these args if others are not accepted.';

CREATE FUNCTION taskledger_internal.check_if_exists(if_exists text, after json, defer_at_most interval DEFAULT NULL::interval, throttle_for interval DEFAULT NULL::interval) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if if_exists is null or if_exists not in ('same', 'ignore', 'replace', 'rerun', 'follow') then
    raise exception 'taskledger: invalid if_exists %: must be same, ignore, rerun, replace or follow',
        coalesce(quote_literal(left(if_exists, 80)), 'null')
      using errcode = 'invalid_parameter_value';
  elsif if_exists in ('replace', 'rerun', 'follow') and after is not null and json_typeof(after) <> 'null' then
    raise exception 'taskledger: invalid if_exists: must not be % together with after', if_exists
      using errcode = 'invalid_parameter_value';
  elsif defer_at_most is not null and if_exists not in ('replace', 'follow') then
    raise exception 'taskledger: invalid defer_at_most: must be set together with if_exists replace or follow'
      using errcode = 'invalid_parameter_value';
  elsif throttle_for is not null and if_exists not in ('rerun', 'replace', 'follow') then
    raise exception 'taskledger: invalid throttle_for: must be set together with if_exists rerun, replace or follow'
      using errcode = 'invalid_parameter_value';
  elsif not coalesce(defer_at_most between interval '0' and interval '292 years', true)
      or not coalesce(throttle_for between interval '0' and interval '292 years', true) then
    raise exception 'taskledger: invalid %: must be between 0 and 292 years',
        case when defer_at_most between interval '0' and interval '292 years' or defer_at_most is null
             then 'throttle_for' else 'defer_at_most' end
      using errcode = 'invalid_parameter_value';
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_if_exists(if_exists text, after json, defer_at_most interval, throttle_for interval) IS 'Raises an error for values that package ledger rejects as the options IfExists, DeferAtMost and ThrottleFor.';

CREATE FUNCTION taskledger_internal.check_key(kind text, biz_id text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
  if kind is null or octet_length(kind) > 128 or kind !~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$' then
    raise exception 'taskledger: invalid kind %', coalesce(quote_literal(left(kind, 140)), 'null')
      using errcode = 'invalid_parameter_value',
            hint = 'a kind must be words of A-Z a-z 0-9 _ - joined by dots, 1 to 128 bytes';
  end if;
  if starts_with(kind, 'taskledger.') then
    raise exception 'taskledger: invalid kind %', quote_literal(kind)
      using errcode = 'invalid_parameter_value',
            hint = 'kinds that begin with taskledger. are reserved for taskledger';
  end if;
  if biz_id is null or octet_length(biz_id) not between 1 and 255 or biz_id ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'taskledger: invalid biz_id %', coalesce(quote_literal(left(biz_id, 260)), 'null')
      using errcode = 'invalid_parameter_value',
            hint = 'a biz_id must be 1 to 255 bytes of UTF-8 without control characters';
  end if;
end
$_$;

COMMENT ON FUNCTION taskledger_internal.check_key(kind text, biz_id text) IS 'Raises an error with the rule for a key that package ledger rejects.';

CREATE FUNCTION taskledger_internal.check_kinds(kinds text[], of_login boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  refused constant text := taskledger_internal.refused_kind(kinds, of_login);
begin
  if refused is not null then
    raise exception 'taskledger: login % may not work on kind %', session_user, refused
      using errcode = 'insufficient_privilege',
            hint = 'grant it the role worker, or one for this kind: taskledger migrate roles --worker NAME=' || refused;
  end if;
  return true;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_kinds(kinds text[], of_login boolean) IS 'Returns true if the current role, or the session''s login, may work on all these kinds, else raises an error that names the first refused.';

CREATE FUNCTION taskledger_internal.check_lease(worker text, kind text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if exists (
      select from taskledger.lease l
       where l.name = 'worker/' || worker and l.login = session_user and l.alive_until > clock_timestamp()
         and check_lease.kind = any (taskledger_internal.lease_kinds(l.detail))) then
    return;
  end if;
  if kind is not null then
    perform taskledger_internal.check_kinds(array[kind]);
  end if;
  if exists (
      select from taskledger.lease l
       where l.name = 'worker/' || worker and l.login <> session_user
         and (l.alive_until > clock_timestamp()
              or taskledger_internal.refused_kind(taskledger_internal.lease_kinds(l.detail), true) is not null)) then
    raise exception 'taskledger: worker % belongs to another login than %', quote_literal(left(worker, 260)),
        session_user
      using errcode = 'insufficient_privilege',
            hint = 'choose another id: an id belongs to the login that has its lease; when the lease has ended, '
                   'another login may have it that may work on all its kinds';
  end if;
  if kind is not null then
    raise exception 'taskledger: worker % has no lease for kind %', quote_literal(left(worker, 260)), kind
      using errcode = 'TL002', hint = 'call taskledger.heartbeat with this kind, and again before the lease ends';
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_lease(worker text, kind text) IS 'Raises an error unless a worker of the session''s login is alive and handles a kind. With null for the kind, only if the worker belongs to another login.';

CREATE FUNCTION taskledger_internal.check_limits_are_current() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if (select c.n from taskledger.start_limit_change c) = pg_sequence_last_value('taskledger.start_limits_set') then
    return;
  end if;
  perform from taskledger.start_limit_change for share skip locked;
  raise sqlstate 'TL007'; -- unlocks the row
exception when sqlstate 'TL007' then
  null;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_limits_are_current() IS 'Raises a serialization failure if a limit of starts was set after the snapshot of the transaction.';

CREATE FUNCTION taskledger_internal.check_meta(meta json, args json) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
  if meta is null or json_typeof(meta) = 'null' then
    return;
  end if;
  if json_typeof(meta) <> 'object' then
    raise exception 'taskledger: invalid meta: must be a JSON object, got %', json_typeof(meta)
      using errcode = 'invalid_parameter_value';
  end if;
  declare
    member record;
  begin
    for member in -- of several with the same name the last one counts
      select distinct on (m.key) m.key, m.value, json_typeof(m.value) as type
        from json_each(meta) with ordinality as m(key, value, i)
       order by m.key, m.i desc
    loop
      if member.key in ('traceparent', 'tracestate', 'causation', 'encoding')
          and member.type not in ('string', 'null') then
        raise exception 'taskledger: invalid meta: % must be a string, got %', member.key, member.type
          using errcode = 'invalid_parameter_value';
      elsif member.key = 'retry' and member.type <> 'null' then
        perform taskledger_internal.check_retry(member.value);
      elsif member.key in ('run_at', 'start_by', 'finish_by', 'after', 'pass_if_dead') then
        raise exception 'taskledger: invalid meta: must not contain %: use the argument of this name', member.key
          using errcode = 'invalid_parameter_value';
      elsif member.key = 'tags' and (member.type not in ('array', 'null') or member.type = 'array' and
          exists (select from json_array_elements(member.value) t where json_typeof(t) not in ('string', 'null'))) then
        raise exception 'taskledger: invalid meta: tags must be an array of strings'
          using errcode = 'invalid_parameter_value';
      end if;
    end loop;
    if coalesce(meta->>'encoding', '') not in ('', 'base64') then
      raise exception 'taskledger: invalid meta: encoding must be base64, got %',
          quote_literal(left(meta->>'encoding', 80))
        using errcode = 'invalid_parameter_value', hint = 'omit the encoding for JSON';
    end if;
    -- Null does not end an AND: without coalesce args would be decoded that need not be decodable.
    if coalesce(meta->>'encoding', '') = 'base64' and json_typeof(args) <> 'null' and (json_typeof(args) <> 'string' or
        translate(args #>> '{}', E'\r\n', '') !~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$') then
      raise exception 'taskledger: invalid args: must be a string of base64, because meta.encoding is base64'
        using errcode = 'invalid_parameter_value';
    end if;
  exception when untranslatable_character or invalid_text_representation or numeric_value_out_of_range then
    -- An escape that PostgreSQL can store but not decode, so that a query over meta would fail at this event.
    -- Or a number in retry that is not a double precision.
    raise exception 'taskledger: invalid meta or args: %', sqlerrm using errcode = 'invalid_parameter_value';
  end;
end
$_$;

COMMENT ON FUNCTION taskledger_internal.check_meta(meta json, args json) IS 'Raises an error for a meta that package ledger rejects, and for args without the encoding in meta.';

CREATE FUNCTION taskledger_internal.check_nesting(name text, text text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  brackets text;
begin
  if coalesce(octet_length(text), 0) <= 1024 then
    return; -- each level takes two bytes
  end if;
  brackets := regexp_replace(text, E'"(?:[^"\\\\]|\\\\.)*"', '', 'g');
  brackets := translate(regexp_replace(brackets, '[^][{}]', '', 'g'), '{}', '[]');
  for i in 1..512 loop
    exit when brackets = '';
    brackets := replace(brackets, '[]', ''); -- one level less
  end loop;
  if brackets <> '' then
    raise exception 'taskledger: invalid %: must nest at most 512 levels deep', name
      using errcode = 'invalid_parameter_value';
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_nesting(name text, text text) IS 'Raises an error for JSON that nests more than 512 levels deep, which workers cannot decode.';

CREATE FUNCTION taskledger_internal.check_order_key(order_key text, pass_if_dead boolean) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if octet_length(order_key) not between 1 and 255 or order_key ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'taskledger: invalid order_key %', quote_literal(left(order_key, 260))
      using errcode = 'invalid_parameter_value',
            hint = 'an order_key must be 1 to 255 bytes of UTF-8 without control characters';
  end if;
  if pass_if_dead and order_key is null then
    raise exception 'taskledger: invalid pass_if_dead: must be set together with order_key'
      using errcode = 'invalid_parameter_value';
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_order_key(order_key text, pass_if_dead boolean) IS 'Raises an error for an order key that package ledger rejects.';

CREATE FUNCTION taskledger_internal.check_own_task(kind text, biz_id text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform taskledger_internal.check_author(
    (select e.login_id
       from taskledger.event e
      where e.kind = check_own_task.kind and e.biz_id = check_own_task.biz_id
        and e.version = taskledger_internal.args_version(check_own_task.kind, check_own_task.biz_id)),
    check_own_task.kind, check_own_task.biz_id);
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_own_task(kind text, biz_id text) IS 'Raises an error unless the session''s login, or a login whose member it is, has enqueued the task''s last run.';

CREATE FUNCTION taskledger_internal.check_owner(subscriber text, login text) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if login <> session_user and row_security_active('taskledger.cursor') then
    raise exception 'taskledger: subscriber % belongs to the login %', subscriber, login
      using errcode = 'insufficient_privilege',
      hint = format('Connect as that login, or as an operator: taskledger seek subscriber %s --give %s', subscriber,
                    session_user);
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_owner(subscriber text, login text) IS 'Raises an error if a subscriber does not belong to the session''s login.';

CREATE FUNCTION taskledger_internal.check_partition(partition text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if octet_length(check_partition.partition) > 64 or check_partition.partition ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'taskledger: invalid partition %', quote_literal(left(check_partition.partition, 80))
      using errcode = 'invalid_parameter_value',
            hint = 'a partition must be at most 64 bytes of UTF-8 without control characters';
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_partition(partition text) IS 'Raises an error for a partition that package ledger rejects.';

CREATE FUNCTION taskledger_internal.check_recorded(action text, subscriber text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if not exists (
       select from taskledger.event e
        where e.xid = pg_current_xact_id_if_assigned() and age(e.xmin) <= 0
          and e.position > (select f.foreign_until from taskledger_internal.floors f)
          and e.kind = 'taskledger.operation' and e.version = 1
          and e.data->>'action' = check_recorded.action
          and e.data->'detail'->>'subscriber' = check_recorded.subscriber) then
    raise exception 'taskledger: this transaction has no record of % of %', action, subscriber
      using errcode = 'insufficient_privilege',
            hint = 'Run: taskledger rebuild tables NAME, or retry parked or discard parked with --subscriber';
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_recorded(action text, subscriber text) IS 'Raises an error unless the calling transaction has recorded an act about a subscriber.';

CREATE FUNCTION taskledger_internal.check_replace(author integer, kind text, biz_id text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if not has_function_privilege(
       coalesce(nullif(current_setting('role'), 'none'), session_user),
       'taskledger_internal.change_task(text, text, taskledger.event_type, integer, text, text, bigint, timestamptz, '
       'integer, boolean)', 'execute') then
    perform taskledger_internal.check_author(check_replace.author, check_replace.kind, check_replace.biz_id);
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_replace(author integer, kind text, biz_id text) IS 'Raises an error if the caller is no operator, and another login, whose member it is not, has enqueued the run that it replaces, or that its run follows: the login with the id author.';

CREATE FUNCTION taskledger_internal.check_retry(retry json, field text DEFAULT 'meta: retry'::text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  longest constant double precision := 366 * 24 * 3600 * 1e6;  -- microseconds
  name text;
  value json;
  number double precision;
begin
  if json_typeof(retry) <> 'object' then
    raise exception 'taskledger: invalid %: must be a JSON object, got %', field, json_typeof(retry)
      using errcode = 'invalid_parameter_value', hint = 'for example {"ladder":[60,300],"attempts":10}';
  end if;
  for name in select distinct json_object_keys(retry) loop
    value := retry -> name;
    number := case json_typeof(value) when 'number' then value::text::double precision end;
    if not coalesce(case name
        when 'ladder' then
          case json_typeof(value) when 'array' then json_array_length(value) <= 100 and not exists (
            select from json_array_elements(value) rung
             where not case json_typeof(rung)
               when 'number' then round(rung::text::double precision * 1e6) between 0 and longest else false end) end
        when 'unit' then round(number * 1e6) between 1 and longest
        when 'max' then round(number * 1e6) between 1 and longest
        when 'attempts' then number between 1 and 1000000 and number = trunc(number)
        when 'jitter' then number between 0 and 1
        else false
      end, json_typeof(value) = 'null') then
      raise exception 'taskledger: invalid %: invalid member % with value %', field,
          quote_literal(left(name, 80)), left(value::text, 80)
        using errcode = 'invalid_parameter_value',
              hint = 'the members are ladder (at most 100 delays), unit and max (delays greater than 0), '
                     'attempts (between 1 and 1000000) and jitter (between 0 and 1); '
                     'a delay is a number of seconds up to 31622400';
    end if;
  end loop;
  if retry -> 'ladder' -> 0 is not null and json_typeof(retry -> 'unit') = 'number' then
    raise exception 'taskledger: invalid %: unit must not be set together with ladder', field
      using errcode = 'invalid_parameter_value';
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_retry(retry json, field text) IS 'Raises an error for a retry policy, in an argument or member, that package ledger rejects.';

CREATE FUNCTION taskledger_internal.check_size(name text, setting text, text text) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  most constant integer := (select s.value::integer from taskledger.setting s where s.name = check_size.setting);
begin
  if octet_length(text) > most then
    raise exception 'taskledger: invalid %: must have at most % bytes, got %', name, most, octet_length(text)
      using errcode = 'invalid_parameter_value',
            hint = case name when 'args' then 'enqueue a reference to a larger payload' else '' end;
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_size(name text, setting text, text text) IS 'Raises an error for args or meta that exceed the limit of a setting.';

CREATE FUNCTION taskledger_internal.check_times(run_at timestamp with time zone, run_in interval, start_by timestamp with time zone, finish_by timestamp with time zone) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  argument record;
begin
  if run_in < interval '0' then
    raise exception 'taskledger: invalid run_in %: must not be negative', run_in
      using errcode = 'invalid_parameter_value';
  end if;
  if run_in > interval '292 years' then
    raise exception 'taskledger: invalid run_in %: must be at most 292 years', run_in
      using errcode = 'invalid_parameter_value';
  end if;
  if run_in is not null and run_at is not null then
    raise exception 'taskledger: invalid run_in %: must not be set together with run_at', run_in
      using errcode = 'invalid_parameter_value';
  end if;
  for argument in values ('run_at', run_at), ('start_by', start_by), ('finish_by', finish_by) loop
    if argument.column2 >= taskledger_internal.end_of_time() or argument.column2 = '-infinity' then
      raise exception 'taskledger: invalid % %: must be a time before the last microsecond of the year 9998',
          argument.column1, argument.column2
        using errcode = 'invalid_parameter_value', hint = 'use null for no time';
    end if;
  end loop;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_times(run_at timestamp with time zone, run_in interval, start_by timestamp with time zone, finish_by timestamp with time zone) IS 'Raises an error with the name of a time that package ledger rejects.';

CREATE FUNCTION taskledger_internal.check_window(op text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if pg_is_in_recovery() then
    raise exception 'taskledger: the database is a standby' using errcode = 'read_only_sql_transaction',
      hint = 'Connect to the primary.';
  end if;
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception 'taskledger: % needs a READ COMMITTED transaction', op using errcode = 'active_sql_transaction',
      hint = 'begin isolation level read committed';
  end if;
  if pg_current_xact_id_if_assigned() is not null then
    raise exception 'taskledger: % must come before anything is written in its transaction', op
      using errcode = 'active_sql_transaction', hint = 'Commit before, or call it first in a transaction.';
  end if;
  if taskledger_internal.foreign_position() is not null then
    raise exception 'taskledger: there are events of another database' using
      errcode = 'object_not_in_prerequisite_state', hint = 'After a restore: taskledger rebase';
  end if;
  if (select s.seqcache from pg_sequence s where s.seqrelid = 'taskledger.event_position_seq'::regclass) <> 1 then
    raise exception 'taskledger: the sequence taskledger.event_position_seq has a cache' using
      errcode = 'object_not_in_prerequisite_state',
      hint = 'alter sequence taskledger.event_position_seq cache 1; then end the sessions that have inserted';
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.check_window(op text) IS 'Raises an error if a window cannot be opened now.';

CREATE FUNCTION taskledger_internal.commit_durably() RETURNS text
    LANGUAGE sql
    RETURN CASE WHEN (current_setting('synchronous_commit'::text) = 'off'::text) THEN set_config('synchronous_commit'::text, 'on'::text, true) ELSE NULL::text END;

COMMENT ON FUNCTION taskledger_internal.commit_durably() IS 'Makes the commit of this transaction wait for the disk if synchronous_commit is off.';

CREATE FUNCTION taskledger_internal.copies_of(kinds text[], biz_ids text[]) RETURNS TABLE(kind text, biz_id text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $_$
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
$_$;

COMMENT ON FUNCTION taskledger_internal.copies_of(kinds text[], biz_ids text[]) IS 'Returns the keys of the deliveries, alarms and waiting runs that are about some tasks.';

CREATE FUNCTION taskledger_internal.count_rows(snapshot text) RETURNS TABLE(seen bigint, unplaced bigint, future bigint)
    LANGUAGE plpgsql STABLE ROWS 1
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_indexscan TO 'off'
    SET enable_indexonlyscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.count_rows(snapshot text) IS 'Counts the events in the table without its indexes: those with a position that a snapshot sees, those without a position, and those of transactions that have not begun.';

CREATE FUNCTION taskledger_internal.cut_seal(last_batch bigint, leaves bigint, edge text, place text, actor text, reason text) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.cut_seal(last_batch bigint, leaves bigint, edge text, place text, actor text, reason text) IS 'Removes the rows of seal up to a batch, with which this many leaves end, and records it with an actor and a reason. The archive at a place contains the full tiles of their tree; edge is its partial tiles. Returns how many leaves they had; 0 if another run has removed them.';

CREATE FUNCTION taskledger_internal.deadline_of(meta json) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;

COMMENT ON FUNCTION taskledger_internal.deadline_of(meta json) IS 'Returns the deadline in the meta of a task; null if there is none or it is not a time.';

CREATE FUNCTION taskledger_internal.delay_of(name text, delay text) RETURNS interval
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return delay::interval;
exception when datetime_field_overflow or invalid_datetime_format or interval_field_overflow then
  raise exception 'taskledger: invalid % %', name, quote_literal(left(delay, 80))
    using errcode = 'invalid_parameter_value';
end
$$;

COMMENT ON FUNCTION taskledger_internal.delay_of(name text, delay text) IS 'Returns a text as an interval; raises an error with the name of an invalid one.';

CREATE FUNCTION taskledger_internal.discard_archived(kinds text[], biz_ids text[], actor text) RETURNS TABLE(n bigint)
    LANGUAGE plpgsql SECURITY DEFINER ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.discard_archived(kinds text[], biz_ids text[], actor text) IS 'Discards the tasks among some whose keys are archived, and returns their numbers, from 1.';

CREATE FUNCTION taskledger_internal.discard_subscriber(subscriber text, kind text, biz_id text) RETURNS SETOF integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  perform taskledger_internal.check_recorded('subscriber.discard', discard_subscriber.subscriber);
  return query
  with parked as (
    update taskledger.subscriber_parked p
       set state = case when p.error <> '' then 'discarded' else 'retry' end
     where p.reader = 'subscriber/' || discard_subscriber.subscriber and p.kind = discard_subscriber.kind
       and p.biz_id = discard_subscriber.biz_id and p.state <> 'discarded'
    returning p.version, p.state
  ), stopped as (
    insert into taskledger.subscriber_parked
           (reader, kind, biz_id, version, position, state, error, failures)
    select 'subscriber/' || discard_subscriber.subscriber, f.kind, f.biz_id, f.version, f.position, 'discarded',
           f.error, f.failures
      from taskledger_internal.failing_event('subscriber/' || discard_subscriber.subscriber) f
     where f.kind = discard_subscriber.kind and f.biz_id = discard_subscriber.biz_id
        on conflict do nothing
    returning version
  )
  select parked.version from parked where parked.state = 'discarded'
   union all
  select stopped.version from stopped;
end
$$;

COMMENT ON FUNCTION taskledger_internal.discard_subscriber(subscriber text, kind text, biz_id text) IS 'Discards the failed events of a task, parked or stopping the subscriber, and returns their versions.';

CREATE FUNCTION taskledger_internal.due_at(after_us bigint, at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql
    RETURN CASE WHEN (at IS NOT NULL) THEN GREATEST(at, clock_timestamp()) WHEN (after_us IS NOT NULL) THEN (clock_timestamp() + ((after_us)::double precision * '00:00:00.000001'::interval)) ELSE NULL::timestamp with time zone END;

COMMENT ON FUNCTION taskledger_internal.due_at(after_us bigint, at timestamp with time zone) IS 'Returns the moment at, or else the moment after_us microseconds from now, never before now, by the database''s clock.';

CREATE FUNCTION taskledger_internal.end_archive(run integer, kinds text[], tasks bigint, held bigint, held_by text, held_since timestamp with time zone) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  update taskledger.archive_run r
     set ended_at = clock_timestamp(), scope = coalesce(end_archive.kinds::text, ''), tasks = end_archive.tasks,
         held = end_archive.held, held_by = end_archive.held_by, held_since = end_archive.held_since
   where r.id = end_archive.run;
end
$$;

COMMENT ON FUNCTION taskledger_internal.end_archive(run integer, kinds text[], tasks bigint, held bigint, held_by text, held_since timestamp with time zone) IS 'Records the end of a run of the archive: the kinds that were named, how many tasks it has removed and readers of the feed hold, one of these readers, and the earliest end of the tasks.';

CREATE FUNCTION taskledger_internal.end_import() RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  partial record;
  timers bigint;
begin
  select p.kind, p.biz_id, p.first, p.events, p.last into partial
    from (
      select e.kind, e.biz_id, min(e.version) as first, count(*) as events, max(e.version) as last
        from taskledger.event e
       group by e.kind, e.biz_id
      having min(e.version) <> 1 or count(*) <> max(e.version)) p
   where p.first <> 1 or exists ( -- the end of a duplicate of an archived task follows the archived versions
     select from taskledger.event e
      where e.kind = p.kind and e.biz_id = p.biz_id and e.version > 1
        and not (e.type = 'discarded' and (e.data is null or strpos(e.data::text, '"reason":"archived"') > 0))
        and not exists (
          select from taskledger.event b
           where b.kind = e.kind and b.biz_id = e.biz_id and b.version = e.version - 1))
   limit 1;
  if found then
    raise exception 'taskledger: the files contain % of the events of %/%, from version % to %', partial.events,
      partial.kind, partial.biz_id, partial.first, partial.last using errcode = 'object_not_in_prerequisite_state',
      hint = 'import all volumes of the ledger together, from the first position on';
  end if;
  if exists (select from taskledger.event e
              where not exists (select from taskledger.login l where l.id = e.login_id)) then
    raise exception 'taskledger: the files do not name the logins of all events'
      using errcode = 'object_not_in_prerequisite_state', hint = 'export the events again';
  end if;
  insert into taskledger.timer (due_at, kind, biz_id, version, reason)
  select taskledger_internal.due_at(null, t.at), t.kind, t.biz_id, t.version, t.reason
    from (
     select e.kind, e.biz_id, r.version, r.reason, r.at
       from taskledger.event e
      cross join lateral (
        select n.version, n.meta
          from taskledger.event n
         where n.kind = e.kind and n.biz_id = e.biz_id
           and n.version = taskledger_internal.args_version(e.kind, e.biz_id)) args
      cross join lateral (values
        (e.version, 'due', case when e.type not in ('snoozed', 'scheduled') then null
                                when e.version = 1 or e.run is not null then e.meta->>'run_at'
                                else e.data->>'run_at' end),
        (e.version, 'retry', case e.type when 'failed' then e.data->>'retry_at' end),
        (args.version, 'start_by', args.meta->>'start_by'),
        (args.version, 'finish_by', args.meta->>'finish_by')) m(version, reason, moment)
      cross join lateral (values (m.version, m.reason, m.moment::timestamptz)) r(version, reason, at)
      where e.type not in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded')
        and r.at is not null
        and not exists (select from taskledger.event n
                         where n.kind = e.kind and n.biz_id = e.biz_id and n.version = e.version + 1)
     union all
     select e.kind, e.biz_id, e.version, 'after', taskledger_internal.end_of_time()
       from taskledger.event e
      where e.type = 'scheduled' and (e.version = 1 or e.run is not null)
        and e.meta->>'after' is not null and e.meta->>'run_at' is null
        and not exists (select from taskledger.event n
                         where n.kind = e.kind and n.biz_id = e.biz_id and n.version = e.version + 1)) t;
  get diagnostics timers = row_count;
  return timers;
end
$$;

COMMENT ON FUNCTION taskledger_internal.end_import() IS 'Checks that the imported events are the whole history of each task, and adds the timers of unfinished tasks. Returns the number of timers.';

CREATE FUNCTION taskledger_internal.end_of_time() RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '9998-12-31 23:59:59.999999+00'::timestamp with time zone;

COMMENT ON FUNCTION taskledger_internal.end_of_time() IS 'Returns when the timers of tasks with predecessors are due, which is never.';

CREATE FUNCTION taskledger_internal.enqueue_again(kind text, biz_id text, if_exists text, args text, meta text, actor text, data_version integer, priority integer, partition text, run_after bigint, run_at timestamp with time zone, start_by timestamp with time zone, finish_by timestamp with time zone, defer_us bigint, throttle_us bigint, order_key text, pass_if_dead boolean, OUT "position" bigint, OUT version integer, OUT type taskledger.event_type) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.enqueue_again(kind text, biz_id text, if_exists text, args text, meta text, actor text, data_version integer, priority integer, partition text, run_after bigint, run_at timestamp with time zone, start_by timestamp with time zone, finish_by timestamp with time zone, defer_us bigint, throttle_us bigint, order_key text, pass_if_dead boolean, OUT "position" bigint, OUT version integer, OUT type taskledger.event_type) IS 'Enqueues the next run of a finished task, replaces the args of a task that has not begun, or lets a run follow one that has, as if_exists wants it. Returns the position of the new event, with the version and the type of the task''s last one; or null as position if the task does not exist, or is not changed. Raises an error if too many tasks of the kind wait.';

CREATE FUNCTION taskledger_internal.enqueue_behind(kind text, biz_id text, args text, meta text, actor text, data_version integer, priority integer, partition text, order_key text, pass_if_dead boolean, due timestamp with time zone, start_by timestamp with time zone, finish_by timestamp with time zone, throttle_us bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.enqueue_behind(kind text, biz_id text, args text, meta text, actor text, data_version integer, priority integer, partition text, order_key text, pass_if_dead boolean, due timestamp with time zone, start_by timestamp with time zone, finish_by timestamp with time zone, throttle_us bigint) IS 'Enqueues a run behind the last run of a task, or replaces the args of the run that waits there. Returns the position of the event.';

CREATE TABLE taskledger.subscriber_parked (
    reader text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    biz_id text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    "position" bigint NOT NULL,
    state text DEFAULT 'parked'::text NOT NULL COLLATE pg_catalog."C",
    error text NOT NULL,
    failures integer NOT NULL,
    parked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE taskledger.subscriber_parked IS 'Events that subscribers have not handled: parked because they fail, or an earlier one of their task does, or discarded by an operator.';

CREATE FUNCTION taskledger_internal.erase_failures(kinds text[], biz_ids text[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 UPDATE taskledger.subscriber_parked p SET error = 'erased'::text
    FROM UNNEST(erase_failures.kinds, erase_failures.biz_ids) k(kind, biz_id)
   WHERE ((p.kind = k.kind) AND (p.biz_id = k.biz_id) AND (p.error <> ''::text));
END;

COMMENT ON FUNCTION taskledger_internal.erase_failures(kinds text[], biz_ids text[]) IS 'Replaces the errors of parked events of erased tasks.';

CREATE FUNCTION taskledger_internal.erase_projected(kinds text[], biz_ids text[], fingerprint text, tags text[], positions bigint[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
begin
  update taskledger.task t
     set error = null, cause = null,
         fingerprint = case when t.fingerprint is not null then erase_projected.fingerprint end
    from unnest(erase_projected.kinds, erase_projected.biz_ids) k(kind, biz_id)
   where t.kind = k.kind and t.biz_id = k.biz_id and num_nonnulls(t.error, t.cause, t.fingerprint) > 0;
  delete from taskledger.task_tag g
   using unnest(erase_projected.tags, erase_projected.positions) k(tag, position)
   where g.tag = k.tag and g.position = k.position;
end
$$;

COMMENT ON FUNCTION taskledger_internal.erase_projected(kinds text[], biz_ids text[], fingerprint text, tags text[], positions bigint[]) IS 'Removes the texts of erased tasks from the projection, and their tags, by the positions of their first events.';

CREATE FUNCTION taskledger_internal.erase_salts_at(positions bigint[], digests text[]) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.erase_salts_at(positions bigint[], digests text[]) IS 'Replaces the salts of archived events with digests, in hexadecimal. Returns the number of salts.';

CREATE TABLE taskledger.subscriber_state (
    reader text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    shape text NOT NULL,
    tables text[] NOT NULL,
    parks boolean NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    failed_position bigint,
    failed_kind text COLLATE pg_catalog."C",
    failed_biz_id text COLLATE pg_catalog."C",
    failed_version integer,
    failures integer DEFAULT 0 NOT NULL,
    failing_since timestamp with time zone,
    failed_at timestamp with time zone,
    failure text,
    wanted text,
    work text,
    work_at timestamp with time zone,
    work_done bigint,
    work_total bigint,
    work_result json
);

COMMENT ON TABLE taskledger.subscriber_state IS 'The state of a subscriber, or of the built-in projection (projector), in addition to its place: its tables, the event that stops it, and its rebuild or verification.';

CREATE FUNCTION taskledger_internal.erase_stopping(kinds text[], biz_ids text[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 UPDATE taskledger.subscriber_state p SET failure = 'erased'::text
    FROM UNNEST(erase_stopping.kinds, erase_stopping.biz_ids) k(kind, biz_id)
   WHERE ((p.failed_kind = k.kind) AND (p.failed_biz_id = k.biz_id));
END;

COMMENT ON FUNCTION taskledger_internal.erase_stopping(kinds text[], biz_ids text[]) IS 'Replaces the errors of subscribers that events of erased tasks stop.';

CREATE FUNCTION taskledger_internal.erase_tasks(id uuid, kinds text[], biz_ids text[], accepts_unknown boolean, fingerprint text, actor text, reason text, OUT is_waiting boolean, OUT tasks bigint, OUT events bigint, OUT unknown text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.erase_tasks(id uuid, kinds text[], biz_ids text[], accepts_unknown boolean, fingerprint text, actor text, reason text, OUT is_waiting boolean, OUT tasks bigint, OUT events bigint, OUT unknown text) IS 'Erases tasks, with the deliveries and alarms about them, and records the act with an actor and a reason. fingerprint: of an error without text. in_stream_until in the record: when the stream removes by age the messages that the relay could not remove, or forever. Returns whether the projector must first read more, how many tasks and events are erased, and a task that is unknown.';

CREATE FUNCTION taskledger_internal.erased_until(kind text, biz_id text) RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return coalesce((
    select max(x.until)
      from taskledger.erasure x
     where x.kind = erased_until.kind and x.biz_id = erased_until.biz_id), 0);
end
$$;

COMMENT ON FUNCTION taskledger_internal.erased_until(kind text, biz_id text) IS 'Returns the position up to which the events of a task are erased; 0: it was not erased.';

CREATE FUNCTION taskledger_internal.error_text(data json) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return coalesce(nullif(data #>> '{error,message}', ''), data ->> 'reason', '');
exception when untranslatable_character or invalid_text_representation then
  return ''; -- an escape that PostgreSQL cannot decode
end
$$;

COMMENT ON FUNCTION taskledger_internal.error_text(data json) IS 'Returns the message of a failed or buried event, as ledger.Event.ErrorText does in Go.';

CREATE FUNCTION taskledger_internal.exceeds_limit(kind text, biz_id text, version integer, type taskledger.event_type, run integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.exceeds_limit(kind text, biz_id text, version integer, type taskledger.event_type, run integer) IS 'Reports whether an event begins a task, or its next run, while too many tasks of its kind wait.';

CREATE FUNCTION taskledger_internal.existing_tasks(kinds text[], biz_ids text[], args text[]) RETURNS TABLE(i bigint, "position" bigint, version integer, type taskledger.event_type, same_args boolean, stored_args text)
    LANGUAGE plpgsql SECURITY DEFINER ROWS 10
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.existing_tasks(kinds text[], biz_ids text[], args text[]) IS 'Returns for each key whose task exists its number in the arrays, the position of the event with its args, the version and the type of the last one, and whether the task has these args, or had args that are erased. If the args differ and the session''s login enqueued it, also its args.';

CREATE FUNCTION taskledger_internal.failing_event(reader text) RETURNS TABLE("position" bigint, kind text, biz_id text, version integer, error text, failures integer)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 SELECT p.failed_position,
     p.failed_kind,
     p.failed_biz_id,
     p.failed_version,
     p.failure,
     p.failures
    FROM taskledger.subscriber_state p
   WHERE ((p.reader = failing_event.reader) AND (p.failures > 0));
END;

COMMENT ON FUNCTION taskledger_internal.failing_event(reader text) IS 'Returns the event that stops a subscriber; no row: none does.';

CREATE FUNCTION taskledger_internal.shortened(text text, max_bytes integer) RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.shortened(text text, max_bytes integer) IS 'Returns a text, truncated to a number of bytes with an ellipsis if it is longer.';

CREATE FUNCTION taskledger_internal.failures_of(kind text, biz_id text, since integer) RETURNS TABLE(attempt integer, failed_at timestamp with time zone, message text)
    LANGUAGE sql STABLE ROWS 5
    BEGIN ATOMIC
 SELECT n.attempt,
     n.recorded_at,
     taskledger_internal.shortened(taskledger_internal.error_text(n.data), 512) AS shortened
    FROM ( SELECT l.xid,
             l."position",
             l.recorded_at,
             l.version,
             l.attempt,
             l.type,
             l.login_id,
             l.run,
             l.shard,
             l.data_version,
             l.priority,
             l.kind,
             l.biz_id,
             l.actor,
             l.order_key,
             l.partition,
             l.data,
             l.meta
            FROM ( SELECT e.xid,
                     e."position",
                     e.recorded_at,
                     e.version,
                     e.attempt,
                     e.type,
                     e.login_id,
                     e.run,
                     e.shard,
                     e.data_version,
                     e.priority,
                     e.kind,
                     e.biz_id,
                     e.actor,
                     e.order_key,
                     e.partition,
                     e.data,
                     e.meta
                    FROM taskledger.event e
                   WHERE ((e.kind = failures_of.kind) AND (e.biz_id = failures_of.biz_id) AND (e.type = 'failed'::taskledger.event_type) AND (e.version > 64) AND (e.version > failures_of.since))
                   ORDER BY e.version DESC
                  LIMIT 100) l
         UNION ALL
          SELECT f.xid,
             f."position",
             f.recorded_at,
             f.version,
             f.attempt,
             f.type,
             f.login_id,
             f.run,
             f.shard,
             f.data_version,
             f.priority,
             f.kind,
             f.biz_id,
             f.actor,
             f.order_key,
             f.partition,
             f.data,
             f.meta
            FROM taskledger.event f
           WHERE ((f.kind = failures_of.kind) AND (f.biz_id = failures_of.biz_id) AND (f.type = 'failed'::taskledger.event_type) AND (f.version <= 64) AND (f.version > failures_of.since))
   ORDER BY 4 DESC
  LIMIT 100) n
   ORDER BY n.version;
END;

COMMENT ON FUNCTION taskledger_internal.failures_of(kind text, biz_id text, since integer) IS 'Returns the newest 100 failed attempts of a task after a version, oldest first.';

CREATE FUNCTION taskledger_internal.feed_floor() RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return (select f.position from taskledger.floor f where f.one);
end
$$;

COMMENT ON FUNCTION taskledger_internal.feed_floor() IS 'Returns the last position whose transaction id belongs to another database; 0: none.';

CREATE FUNCTION taskledger_internal.feed_lag(reader text, how_many integer, OUT events bigint, OUT oldest timestamp with time zone) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
begin
  with newest as materialized (
    select c.seen, c.seen_top, c.seen_bound, c.until, c.bound, c.after_position,
           taskledger_internal.feed_floor() as floor
      from (select n.* from taskledger.cursors n where n.reader = feed_lag.reader order by n.n desc limit 1) c
     where c.is_local
  )
  select count(*), min(p.recorded_at)
    into events, oldest
    from (
      (select late.recorded_at
         from newest c
        cross join lateral taskledger_internal.late_xids(c.seen, c.seen_bound) x
        cross join lateral (
          select e.position, e.recorded_at
            from taskledger.event e
           where (e.xid, e.position) > (x, c.floor) and (e.xid, e.position) <= (x, c.seen_top)
             and (c.until is null or e.position > c.after_position or not pg_visible_in_snapshot(x, c.until))
           order by e.xid, e.position
           limit how_many) late
        limit how_many)
      union all
      (select unseen.recorded_at
         from newest c
        cross join lateral taskledger_internal.late_xids(c.until, c.bound) x
        cross join lateral (
          select e.position, e.recorded_at
            from taskledger.event e
           where (e.xid, e.position) > (x, greatest(c.seen_top, c.floor))
             and (e.xid, e.position) <= (x, c.after_position)
             and not pg_visible_in_snapshot(x, c.until)
           order by e.xid, e.position
           limit how_many) unseen
        where c.until is not null
        limit how_many)
      union all
      (select e.recorded_at
         from taskledger.event e
        where e.position > coalesce((select greatest(c.seen_top, c.after_position) from newest c), 0)
        order by e.position
        limit how_many)
      limit how_many) p;
end
$$;

COMMENT ON FUNCTION taskledger_internal.feed_lag(reader text, how_many integer, OUT events bigint, OUT oldest timestamp with time zone) IS 'Returns how many committed events a reader of the feed has not passed, at most how_many, and when the oldest of them was recorded. A reader without a cursor in this database has passed none.';

CREATE FUNCTION taskledger_internal.feed_page(seen pg_snapshot, seen_top bigint, seen_bound xid8, until pg_snapshot, top bigint, after_position bigint, how_many integer) RETURNS SETOF taskledger.event
    LANGUAGE plpgsql STABLE STRICT
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
declare
  late xid8[];
  late_rows integer := 0;
  few constant integer := 4;
  floor bigint := (select f.position from taskledger.floor f where f.one);
  late_after bigint := greatest(feed_page.after_position, floor);
begin
  -- The transactions of late_xids, by its definition: a call of it would cost as much as the rest of a short page.
  if late_after < feed_page.seen_top and pg_snapshot_xmin(feed_page.seen) < feed_page.seen_bound then
    late := array(
      select x from pg_snapshot_xip(feed_page.seen) x where pg_visible_in_snapshot(x, feed_page.until)
       union all
      select x::text::xid8
        from generate_series(pg_snapshot_xmax(feed_page.seen)::text::bigint, feed_page.seen_bound::text::bigint - 1) x
       where pg_visible_in_snapshot(x::text::xid8, feed_page.until));
  end if;
  if cardinality(late) = 1 then
    return query
    select e.*
      from taskledger.event e
     where (e.xid, e.position) > (late[1], late_after)
       and (e.xid, e.position) <= (late[1], feed_page.seen_top)
     order by e.xid, e.position
     limit feed_page.how_many;
    get diagnostics late_rows = row_count;
  elsif cardinality(late) <= few then
    return query
    select l.*
      from unnest(late) x
     cross join lateral (
       select e.*
         from taskledger.event e
        where (e.xid, e.position) > (x, late_after)
          and (e.xid, e.position) <= (x, feed_page.seen_top)
        order by e.xid, e.position
        limit feed_page.how_many) l
     order by l.position
     limit feed_page.how_many;
    get diagnostics late_rows = row_count;
  elsif cardinality(late) > few then
    return query
    select l.*
      from taskledger_internal.late_shares(late, late_after, feed_page.seen_top, feed_page.how_many) s
     cross join lateral (
       select e.*
         from taskledger.event e
        where (e.xid, e.position) > (s.xid, late_after)
          and (e.xid, e.position) <= (s.xid, feed_page.seen_top)
        order by e.xid, e.position
        limit s.events) l
     order by l.position
     limit feed_page.how_many;
    get diagnostics late_rows = row_count;
  end if;
  return query
  select e.*
    from taskledger.event e
   where e.position > greatest(feed_page.after_position, feed_page.seen_top) and e.position <= feed_page.top
     and (e.position <= floor or pg_visible_in_snapshot(e.xid, feed_page.until))
   order by e.position
   limit feed_page.how_many - late_rows;
end
$$;

COMMENT ON FUNCTION taskledger_internal.feed_page(seen pg_snapshot, seen_top bigint, seen_bound xid8, until pg_snapshot, top bigint, after_position bigint, how_many integer) IS 'Returns the next how_many events of a window after a position, in the order of the feed; none of null.';

CREATE FUNCTION taskledger_internal.feed_passed(xid xid8, "position" bigint, floor bigint, seen pg_snapshot, until pg_snapshot, after_position bigint) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE(pg_visible_in_snapshot(CASE WHEN ("position" <= floor) THEN '3'::xid8 ELSE xid END, COALESCE(CASE WHEN ("position" <= after_position) THEN until ELSE NULL::pg_snapshot END, seen)), false);

COMMENT ON FUNCTION taskledger_internal.feed_passed(xid xid8, "position" bigint, floor bigint, seen pg_snapshot, until pg_snapshot, after_position bigint) IS 'Reports whether a cursor (its columns seen, until, after_position) has passed an event (its xid and position), with floor as feed_floor() returns it. Null for the event means false, null for until no open window.';

CREATE FUNCTION taskledger_internal.feed_tally(since pg_snapshot, until pg_snapshot, how_many integer, INOUT xid xid8, INOUT "position" bigint, OUT entries bigint, OUT events bigint, OUT positions bigint) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
declare
  lower xid8 := greatest(feed_tally.xid, pg_snapshot_xmax(since));
  lower_position bigint := case when feed_tally.xid < lower then 0 else feed_tally.position end;
  floor bigint := taskledger_internal.feed_floor();
  x xid8;
  part record;
begin
  entries := 0; events := 0; positions := 0;
  -- unfinished in since: one after the other, so that only how_many entries are read of all of them
  for x in select u from pg_snapshot_xip(since) u
            where u >= feed_tally.xid and pg_visible_in_snapshot(u, until) order by u loop
    select count(*) as entries, coalesce(bit_xor(e.position), 0) as positions, max(e.position) as last
      into part
      from (
        select e.position
          from taskledger.event e
         where (e.xid, e.position) > (x, case when x = feed_tally.xid then greatest(feed_tally.position, floor)
                                              else floor end)
           and (e.xid, e.position) <= (x, 9223372036854775807)
         order by e.xid, e.position
         limit how_many - feed_tally.entries) e;
    if part.entries > 0 then
      entries := feed_tally.entries + part.entries; events := feed_tally.entries;
      positions := feed_tally.positions # part.positions;
      xid := x; "position" := part.last;
    end if;
    exit when feed_tally.entries >= how_many;
  end loop;
  select count(*) as entries, count(*) filter (where s.seen) as events,
         coalesce(bit_xor(s.position) filter (where s.seen), 0) as positions,
         coalesce((array_agg(s.xid))[count(*)], feed_tally.xid) as xid,
         coalesce((array_agg(s.position))[count(*)], feed_tally.position) as "position"
    into part
    from (
      select e.xid, e.position, e.position > floor and pg_visible_in_snapshot(e.xid, until) as seen
        from taskledger.event e
       where (e.xid, e.position) > (lower, lower_position) and e.xid < pg_snapshot_xmax(until)
       order by e.xid, e.position
       limit how_many - feed_tally.entries) s;
  entries := feed_tally.entries + part.entries;
  events := feed_tally.events + part.events;
  positions := feed_tally.positions # part.positions;
  xid := part.xid; "position" := part.position;
end
$$;

COMMENT ON FUNCTION taskledger_internal.feed_tally(since pg_snapshot, until pg_snapshot, how_many integer, INOUT xid xid8, INOUT "position" bigint, OUT entries bigint, OUT events bigint, OUT positions bigint) IS 'Counts the events between two snapshots by the definition of a snapshot, to audit the deliveries of a feed.';

CREATE FUNCTION taskledger_internal.fence_key() RETURNS bytea
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if not exists (select from taskledger.fence_key) then
    perform taskledger_internal.commit_durably();
    insert into taskledger.fence_key (key)
    values (decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'))
        on conflict do nothing;
  end if;
  return (select k.key from taskledger.fence_key k);
end
$$;

COMMENT ON FUNCTION taskledger_internal.fence_key() IS 'Returns the key that seals fences, and makes it if there is none.';

CREATE FUNCTION taskledger_internal.fire_timers(due_from timestamp with time zone, how_many integer, may_release taskledger.event_type[], may_expire taskledger.event_type[], except_keys text[], only_due timestamp with time zone[], only_kinds text[], only_biz_ids text[]) RETURNS TABLE(clock timestamp with time zone, timers bigint, released bigint, expired bigint, kept bigint, elsewhere bigint, first_due_at timestamp with time zone, last_due_at timestamp with time zone)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
begin
  return query
  with clock as materialized (
    select clock_timestamp() as at
  ), wanted as materialized (
    select distinct o.due_at, o.kind, o.biz_id
      from unnest(fire_timers.only_due, fire_timers.only_kinds, fire_timers.only_biz_ids) o(due_at, kind, biz_id)
      cross join clock c
     where o.due_at <= c.at
  ), due as materialized (
    select early.*
      from (
        select t.ctid as address, t.due_at, t.kind, t.biz_id, t.version, t.reason
          from taskledger.timer t
         where cardinality(fire_timers.only_kinds) = 0 and t.due_at >= fire_timers.due_from
           and t.due_at <= (select c.at from clock c)
           -- unnest: a hash table, which = any (array) does not make
           and t.kind || '/' || t.biz_id not in (select unnest(fire_timers.except_keys))
         order by t.due_at, t.kind, t.biz_id, t.version, t.reason
         limit fire_timers.how_many
           for update skip locked) early
    union all
    select mine.*
      from wanted o
     cross join lateral (
       select t.ctid as address, t.due_at, t.kind, t.biz_id, t.version, t.reason
         from taskledger.timer t
        where t.due_at = o.due_at and t.kind = o.kind and t.biz_id = o.biz_id
        order by t.due_at, t.kind, t.biz_id, t.version, t.reason
        limit fire_timers.how_many
          for update skip locked) mine
  ), headed as materialized (
    select d.*, h.version as head, h.attempt, h.shard, h.type, h.priority, h.partition, h.order_key,
           d.reason in ('start_by', 'finish_by')
             and d.version = taskledger_internal.args_version(d.kind, d.biz_id) as is_deadline,
           case when h.version = 1 then taskledger_internal.archived_version(d.kind, d.biz_id) end as archived
      from due d
     cross join lateral (
       select e.version, e.attempt, e.shard, e.type, e.priority, e.partition, e.order_key
         from taskledger.event e
        where e.kind = d.kind and e.biz_id = d.biz_id
        order by e.version desc
        limit 1) h
  ), verdict as materialized (
    select j.*,
           case when j.archived is not null then 'discarded'
                when j.reason in ('due', 'retry') and j.version = j.head
                     and j.type = any (fire_timers.may_release) then 'released'
                when j.is_deadline and (j.reason = 'finish_by' or j.attempt = 0)
                     and j.type = any (fire_timers.may_expire) then 'expired'
                when j.is_deadline and j.reason = 'finish_by'
                     and taskledger.state_after(j.type) = 'running' then 'later'
           end as answer
      from headed j
  ), chosen as materialized (
    select distinct on (v.kind, v.biz_id) v.*
      from verdict v
     where v.answer in ('discarded', 'released', 'expired')
     order by v.kind, v.biz_id, v.answer, v.reason, v.due_at -- expired before released
  ), tx as materialized (
    select pg_current_xact_id() as xid,
           coalesce((select l.id from taskledger.logins l where l.name = session_user limit 1),
                    taskledger_internal.login_id()) as login_id, taskledger_internal.wake()
     where exists (select from chosen)
  ), added as (
    insert into taskledger.event (xid, version, attempt, shard, type, login_id, priority, partition, kind, biz_id,
                                  order_key, actor, data)
    select tx.xid, coalesce(c.archived, c.head) + 1, c.attempt, c.shard,
           taskledger_internal.type_in_line(c.answer::taskledger.event_type, c.type, c.order_key), tx.login_id,
           c.priority, c.partition, c.kind, c.biz_id, c.order_key, 'scheduler',
           taskledger_internal.with_moment(
             '{"reason":"' || case when c.archived is null then c.reason else 'archived' end || '"}', 'due_at',
             c.due_at)::json
      from tx cross join chosen c
     order by c.kind, c.biz_id
        on conflict (kind, biz_id, version) do nothing
    returning kind, biz_id, type
  ), kept as materialized (
    select v.address
      from verdict v
     where v.answer = 'expired' and not exists (select from added a where a.kind = v.kind and a.biz_id = v.biz_id)
  ), moved as (
    update taskledger.timer t
       set due_at = clock_timestamp() + interval '1 second'
     where t.ctid = any (array(select v.address from verdict v where v.answer = 'later'))
  ), gone as (
    delete from taskledger.timer t
     where t.ctid = any (array(
       select d.address from due d
        where not exists (select from kept k where k.address = d.address)
          and not exists (select from verdict v where v.address = d.address and v.answer = 'later')))
  )
  select (select c.at from clock c), count(*),
         (select count(*) from added a where a.type not in ('expired', 'discarded')),
         (select count(*) from added a where a.type = 'expired'), (select count(*) from kept),
         (select count(*)
            from wanted o
           cross join lateral (
             select t.ctid as address
               from taskledger.timer t
              where t.due_at = o.due_at and t.kind = o.kind and t.biz_id = o.biz_id
              order by t.due_at, t.kind, t.biz_id, t.version, t.reason
              limit fire_timers.how_many) there
           where not exists (select from due mine where mine.address = there.address)),
         min(d.due_at), max(d.due_at)
    from due d;
end
$$;

COMMENT ON FUNCTION taskledger_internal.fire_timers(due_from timestamp with time zone, how_many integer, may_release taskledger.event_type[], may_expire taskledger.event_type[], except_keys text[], only_due timestamp with time zone[], only_kinds text[], only_biz_ids text[]) IS 'Appends the events of at most how_many timers due since due_from, and removes the timers. may_release and may_expire: the types of events that released and expired may follow. except_keys: keys (kind/biz_id) to leave out. only_due, only_kinds and only_biz_ids, of one length: the only timers, instead; empty for all. Returns the clock that decided, the numbers of timers locked, of released and expired events, and of timers kept; how many of the only timers another session has locked; due_at of the first and the last timer locked.';

CREATE FUNCTION taskledger_internal.follows(kind text, biz_id text, version integer, attempt integer, shard smallint, priority smallint, partition text, order_key text, type taskledger.event_type, login_id integer DEFAULT NULL::integer) RETURNS taskledger.event_type
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return (
    select e.type
      from taskledger.event e
     where e.kind = follows.kind and e.biz_id = follows.biz_id and e.version = follows.version - 1
       and e.shard = follows.shard and (e.priority = follows.priority or follows.priority is null)
       and e.partition is not distinct from follows.partition
       and follows.attempt = e.attempt + taskledger_internal.begins_attempt(follows.type, e.type)::integer
       and taskledger_internal.may_follow(follows.type, e.type)
       and e.order_key is not distinct from follows.order_key
       and (e.order_key is not null or follows.type <> 'lined_up')
       and taskledger_internal.type_in_line(follows.type, e.type, e.order_key) = follows.type
       and case when follows.login_id is null or e.type not in ('started', 'progressed')
                     or e.login_id = follows.login_id then true
                else not taskledger_internal.is_anothers_worker(e.actor, e.kind) end);
end
$$;

COMMENT ON FUNCTION taskledger_internal.follows(kind text, biz_id text, version integer, attempt integer, shard smallint, priority smallint, partition text, order_key text, type taskledger.event_type, login_id integer) IS 'Returns the type of the event that an event follows; null if it may not follow that event, or if its attempt, shard, priority (null: any), partition or order key differs from the ledger''s. With a login_id, also null if the event would end or continue an attempt of a live worker of another login.';

CREATE FUNCTION taskledger_internal.foreign_position() RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
declare
  floor bigint := (select f.position from taskledger_internal.floors f where f.is_local);
begin
  if floor is null then
    return 0;
  end if;
  return (
    select e.position
      from ((select n.xid, n.position from taskledger.event n order by n.xid desc, n.position desc limit 1)
            union all
            (select f.xid, f.position from taskledger.event f where f.position > floor order by f.position limit 1)
            union all
            (select l.xid, l.position from taskledger.event l order by l.position desc limit 1)) e
     where e.position > floor and e.xid >= pg_snapshot_xmax(pg_current_snapshot())
     limit 1);
end
$$;

COMMENT ON FUNCTION taskledger_internal.foreign_position() IS 'Returns the position of an event above the floor that belongs to another database, because this database has not reached its transaction id; 0 if the floor itself belongs to another database; null: no such event.';

CREATE FUNCTION taskledger_internal.forget_keys(actor text, reason text, OUT keys bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.forget_keys(actor text, reason text, OUT keys bigint) IS 'Forgets the archived keys of a batch whose time in key_life is over, and records it. Returns their number; null: none is due.';

CREATE FUNCTION taskledger_internal.forget_leaves(positions bigint[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
begin
  delete from taskledger.seal_rest r using unnest(positions) p(position) where r.position = p.position;
end
$$;

COMMENT ON FUNCTION taskledger_internal.forget_leaves(positions bigint[]) IS 'Removes leaf and salt of archived events, if their rows of seal were removed before.';

CREATE FUNCTION taskledger_internal.forget_tasks(kinds text[], biz_ids text[], tags text[], positions bigint[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
begin
  delete from taskledger.task t
   using unnest(forget_tasks.kinds, forget_tasks.biz_ids) k(kind, biz_id)
   where t.kind = k.kind and t.biz_id = k.biz_id;
  if cardinality(forget_tasks.tags) > 0 then
    delete from taskledger.task_tag g
     using unnest(forget_tasks.tags, forget_tasks.positions) k(tag, position)
     where g.tag = k.tag and g.position = k.position;
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.forget_tasks(kinds text[], biz_ids text[], tags text[], positions bigint[]) IS 'Removes archived tasks, by their keys, and their tags, by the positions of their first events.';

CREATE FUNCTION taskledger_internal.has_erased_args(kind text, biz_id text) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return exists (
    select from taskledger.erasure x
      join taskledger.event e on e.kind = x.kind and e.biz_id = x.biz_id and e.position <= x.until
     where x.kind = has_erased_args.kind and x.biz_id = has_erased_args.biz_id
       and e.version = taskledger_internal.args_version(has_erased_args.kind, has_erased_args.biz_id));
end
$$;

COMMENT ON FUNCTION taskledger_internal.has_erased_args(kind text, biz_id text) IS 'Returns whether the args of a task are erased, so that it cannot be released.';

CREATE FUNCTION taskledger_internal.has_tables(reader text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 SELECT (EXISTS ( SELECT
            FROM taskledger.subscriber_state p
           WHERE ((p.reader = has_tables.reader) AND (p.tables <> '{}'::text[])))) AS "exists";
END;

COMMENT ON FUNCTION taskledger_internal.has_tables(reader text) IS 'Reports whether a reader of the feed has registered tables.';

CREATE FUNCTION taskledger_internal.heads_page(seen pg_snapshot, until pg_snapshot, after_position bigint, top bigint, kind text, biz_id text, last_kind text, how_many integer) RETURNS SETOF taskledger.event
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_hashagg TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_sort TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
declare
  floor bigint := taskledger_internal.feed_floor();
begin
  return query
  with heads as materialized (
    select e.kind, e.biz_id, max(e.version) as version
      from taskledger.event e
     where (e.kind, e.biz_id) > (heads_page.kind, heads_page.biz_id) and e.kind <= heads_page.last_kind
       and e.position <= heads_page.top
       and taskledger_internal.feed_passed(e.xid, e.position, floor, heads_page.seen, heads_page.until,
                                           heads_page.after_position)
     group by e.kind, e.biz_id
     order by e.kind, e.biz_id
     limit heads_page.how_many
  )
  select e.*
    from heads h
    join taskledger.event e on e.kind = h.kind and e.biz_id = h.biz_id and e.version = h.version;
end
$$;

COMMENT ON FUNCTION taskledger_internal.heads_page(seen pg_snapshot, until pg_snapshot, after_position bigint, top bigint, kind text, biz_id text, last_kind text, how_many integer) IS 'Returns the last events of the next how_many tasks after a key, as of a place, in key order.';

CREATE FUNCTION taskledger_internal.hold_session(name text, holds text[], term_ms bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  insert into taskledger.remote_session as s (name, until, holds)
  values (hold_session.name, clock_timestamp() + hold_session.term_ms * interval '1 millisecond', hold_session.holds)
      on conflict on constraint remote_session_pkey do update
     set until = excluded.until, holds = excluded.holds;
  delete from taskledger.remote_session s
   where s.name in (
     select d.name from taskledger.remote_session d
      where d.until < clock_timestamp() - interval '1 hour'
        for update skip locked);
end
$$;

COMMENT ON FUNCTION taskledger_internal.hold_session(name text, holds text[], term_ms bigint) IS 'Records the attempts that a worker over HTTP holds. Removes the rows that ended an hour ago.';

CREATE TABLE taskledger.erasure (
    id uuid NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    biz_id text NOT NULL COLLATE pg_catalog."C",
    until bigint NOT NULL,
    shard smallint NOT NULL,
    first_at timestamp with time zone,
    last_at timestamp with time zone,
    erased_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL
);

COMMENT ON TABLE taskledger.erasure IS 'The tasks whose data, meta and actor were erased, and up to which position. Append-only.';

CREATE FUNCTION taskledger_internal.import_erasure(id uuid, kinds text[], biz_ids text[], positions bigint[], erased_at timestamp with time zone, actor text, reason text) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 INSERT INTO taskledger.erasure (id, kind, biz_id, until, shard, first_at, last_at, erased_at, actor, reason)  SELECT import_erasure.id AS id,
             k.kind,
             k.biz_id,
             k.until,
             COALESCE(e.shard, taskledger.shard_of(k.biz_id)) AS "coalesce",
             e.first_at,
             e.last_at,
             import_erasure.erased_at AS erased_at,
             import_erasure.actor AS actor,
             import_erasure.reason AS reason
            FROM (UNNEST(import_erasure.kinds, import_erasure.biz_ids, import_erasure.positions) k(kind, biz_id, until)
              CROSS JOIN LATERAL ( SELECT max(v.shard) AS shard,
                     min(v.recorded_at) AS first_at,
                     max(v.recorded_at) AS last_at
                    FROM taskledger.event v
                   WHERE ((v.kind = k.kind) AND (v.biz_id = k.biz_id))) e);
END;

COMMENT ON FUNCTION taskledger_internal.import_erasure(id uuid, kinds text[], biz_ids text[], positions bigint[], erased_at timestamp with time zone, actor text, reason text) IS 'Adds an erasure that files list, whose events are imported without texts.';

CREATE FUNCTION taskledger_internal.incarnation() RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if pg_is_in_recovery() then
    return null;
  end if;
  return (select i.id::text
            from taskledger.incarnation i
           where i.one and i.of_table = taskledger_internal.origin() || '/' || i.tableoid
                                        || '/' || taskledger_internal.last_crash());
end
$$;

COMMENT ON FUNCTION taskledger_internal.incarnation() IS 'Returns the id in the table incarnation; null on a standby, and until a feed is opened after a crash or a restore.';

CREATE TABLE taskledger.setting (
    name text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL,
    CONSTRAINT setting_min_bytes CHECK (((name <> ALL (ARRAY['max_args_bytes'::text, 'max_meta_bytes'::text])) OR ((value)::integer >= 4096)))
);

COMMENT ON TABLE taskledger.setting IS 'Settings that all programs share: installation, max_args_bytes, max_meta_bytes.';

CREATE FUNCTION taskledger_internal.installation() RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT s.value
    FROM taskledger.setting s
   WHERE (s.name = 'installation'::text);
END;

COMMENT ON FUNCTION taskledger_internal.installation() IS 'Returns the id of this ledger, which its stream and its CloudEvents carry.';

CREATE FUNCTION taskledger_internal.is_anothers_worker(worker text, kind text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return exists (
    select from taskledger.lease l
     where l.name = 'worker/' || worker and l.login <> session_user and l.alive_until > clock_timestamp()
       and is_anothers_worker.kind = any (taskledger_internal.lease_kinds(l.detail)));
end
$$;

COMMENT ON FUNCTION taskledger_internal.is_anothers_worker(worker text, kind text) IS 'Returns whether a worker of a kind and of another login is alive, so that the session''s login must not act as it.';

CREATE UNLOGGED SEQUENCE taskledger.awaited_until
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

COMMENT ON SEQUENCE taskledger.awaited_until IS 'Internal: until when appends of events wake the relay, in microseconds since 1970.';

CREATE FUNCTION taskledger_internal.is_awaited() RETURNS boolean
    LANGUAGE sql
    RETURN (to_timestamp(((pg_sequence_last_value('taskledger.awaited_until'::regclass))::double precision * (0.000001)::double precision)) > clock_timestamp());

COMMENT ON FUNCTION taskledger_internal.is_awaited() IS 'Returns whether a process waits for outcomes; null if none ever did.';

CREATE FUNCTION taskledger_internal.is_cursor(reader text, n bigint, seen pg_snapshot, seen_top bigint, seen_bound xid8, until pg_snapshot, top bigint, bound xid8, after_position bigint, audited pg_snapshot, origin text, mark json) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
  max_late constant integer := 1000000;        -- transaction ids between a snapshot and its bound
  max_snapshot_bytes constant integer := 1048576;
  max_mark_bytes constant integer := 65536;
  last constant bigint := coalesce(pg_sequence_last_value('taskledger.event_position_seq'::regclass), 0);
  next_of_snapshots constant xid8 := greatest(pg_snapshot_xmax(seen), pg_snapshot_xmax(until),
                                              pg_snapshot_xmax(audited));
  newest constant xid8 := greatest(seen_bound, bound, (next_of_snapshots::text::numeric - 1)::text::xid8);
begin
  if reader !~ '^subscriber/[A-Za-z0-9_-]{1,64}$' or octet_length(origin) > 100
     or num_nulls(until, top, bound) not in (0, 3)
     or least(seen_top, top, after_position) < 0 or greatest(seen_top, top, after_position) > last
     or greatest(pg_column_size(seen), pg_column_size(until), pg_column_size(audited)) > max_snapshot_bytes
     or seen_bound::text::numeric - pg_snapshot_xmax(seen)::text::numeric > max_late
     or bound::text::numeric - pg_snapshot_xmax(until)::text::numeric > max_late
     or n < 1 or n > 1 + coalesce((select c.n from taskledger.cursor c where c.reader = is_cursor.reader
                                    order by c.n desc limit 1), 0) then
    return false;
  end if;
  if newest >= pg_snapshot_xmax(pg_current_snapshot())
     and newest > coalesce(pg_current_xact_id_if_assigned(), '0') then
    begin
      perform pg_xact_status(newest);
    exception
      when invalid_parameter_value then
        return false;
    end;
  end if;
  if mark is not null then
    begin
      return octet_length(mark::text) <= max_mark_bytes and jsonb_typeof(mark::jsonb) = 'object';
    exception
      when others then
        return false;
    end;
  end if;
  return true;
end
$_$;

COMMENT ON FUNCTION taskledger_internal.is_cursor(reader text, n bigint, seen pg_snapshot, seen_top bigint, seen_bound xid8, until pg_snapshot, top bigint, bound xid8, after_position bigint, audited pg_snapshot, origin text, mark json) IS 'Reports whether a cursor row of a subscriber is well-formed: its name, transaction ids and positions that this database has assigned, the next n, and a mark that every reader can read.';

CREATE FUNCTION taskledger_internal.is_first(version integer, attempt integer, shard smallint, type taskledger.event_type, kind text, biz_id text, order_key text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((version IS NULL) OR ((version = 1) AND (attempt = 0) AND ((shard >= 0) AND (shard <= 63)) AND CASE WHEN (order_key IS NULL) THEN (type = ANY (ARRAY['enqueued'::taskledger.event_type, 'scheduled'::taskledger.event_type])) ELSE ((type = ANY (ARRAY['lined_up'::taskledger.event_type, 'scheduled'::taskledger.event_type])) AND ((octet_length(order_key) >= 1) AND (octet_length(order_key) <= 255)) AND (order_key !~ '[\u0001-\u001f\u007f-\u009f]'::text)) END AND (octet_length(kind) <= 128) AND (kind ~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$'::text) AND ((octet_length(biz_id) >= 1) AND (octet_length(biz_id) <= 255)) AND (biz_id !~ '[\u0001-\u001f\u007f-\u009f]'::text)));

COMMENT ON FUNCTION taskledger_internal.is_first(version integer, attempt integer, shard smallint, type taskledger.event_type, kind text, biz_id text, order_key text) IS 'Reports whether an event may begin a task.';

CREATE FUNCTION taskledger_internal.is_hidden(kind text, biz_id text) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if exists (select from taskledger.event e where e.kind = is_hidden.kind and e.biz_id = is_hidden.biz_id) then
    raise exception 'taskledger: login % may not read tasks of kind %', session_user, is_hidden.kind
      using errcode = 'insufficient_privilege',
            hint = 'grant it the role worker, or one for this kind: taskledger migrate roles --worker NAME='
                   || is_hidden.kind;
  end if;
  return false;
end
$$;

COMMENT ON FUNCTION taskledger_internal.is_hidden(kind text, biz_id text) IS 'Returns false for a missing task, and raises an error for a task that row-level security hides.';

CREATE FUNCTION taskledger_internal.is_lease(name text, holder text, since timestamp with time zone, alive_until timestamp with time zone, term interval, detail json) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return not starts_with(name, 'worker/')
      or name = 'worker/' || holder and octet_length(holder) between 1 and 255
     and least(since, alive_until) >= '1970-01-01 00:00:00+00'
     and since <= clock_timestamp() + interval '1 day' and alive_until <= clock_timestamp() + term
     and taskledger_internal.lease_kinds(detail) is not null
     and taskledger_internal.check_kinds(taskledger_internal.lease_kinds(detail));
end
$$;

COMMENT ON FUNCTION taskledger_internal.is_lease(name text, holder text, since timestamp with time zone, alive_until timestamp with time zone, term interval, detail json) IS 'Reports whether a lease is well-formed: a worker''s lease lasts at most its term, and its detail lists kinds that the role may work on.';

CREATE FUNCTION taskledger_internal.is_limited(kind text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
begin
  return pg_sequence_last_value('taskledger.start_limits_set'::regclass) is not null
         and exists (select from taskledger.limited_kind k where k.kind = is_limited.kind);
end
$$;

COMMENT ON FUNCTION taskledger_internal.is_limited(kind text) IS 'Reports whether a kind has limits of starts.';

CREATE FUNCTION taskledger_internal.is_primary() RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if pg_is_in_recovery() then
    raise exception 'taskledger: the database is a standby' using errcode = 'read_only_sql_transaction';
  end if;
  return true;
end
$$;

COMMENT ON FUNCTION taskledger_internal.is_primary() IS 'Returns true, and raises an error on a standby.';

CREATE FUNCTION taskledger_internal.is_reserved(kind text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (starts_with(kind, 'taskledger.'::text) AND (NOT starts_with(kind, 'taskledger.webhook.'::text)));

COMMENT ON FUNCTION taskledger_internal.is_reserved(kind text) IS 'Returns whether a kind is one of taskledger itself: only its services enqueue tasks of these kinds.';

CREATE FUNCTION taskledger_internal.is_same_json(a text, b text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.is_same_json(a text, b text) IS 'Returns whether two JSON texts are equal as values, or both null. The order of members, spaces, and the notation of strings and numbers do not matter.';

CREATE FUNCTION taskledger_internal.is_turn(type taskledger.event_type, data json) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((type = 'released'::taskledger.event_type) AND COALESCE(starts_with((data)::text, '{"reason":"turn"'::text), false));

COMMENT ON FUNCTION taskledger_internal.is_turn(type taskledger.event_type, data json) IS 'Returns whether an event gives a task its turn in its line: an erasure keeps it.';

CREATE FUNCTION taskledger_internal.json_value(document text, OUT in_order text, OUT value text, OUT is_unique boolean) RETURNS record
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
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
$_$;

COMMENT ON FUNCTION taskledger_internal.json_value(document text, OUT in_order text, OUT value text, OUT is_unique boolean) IS 'Returns a JSON text rewritten so that jsonb can hold it, in the order of its members and in jsonb''s order, and whether all names of each object differ.';

CREATE FUNCTION taskledger_internal.keep_limit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.keep_limit() IS 'The trigger that refuses the commit of a task over the limit of its kind, unless the transaction has discarded it.';

CREATE FUNCTION taskledger_internal.keep_own_permit(name text, kind text, biz_id text, version integer, attempt integer, actor text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_variable
declare
  own taskledger.permit%rowtype;
begin
  select * into own
    from taskledger.permit p
   where p.name = name and p.value = '' and p.kind = kind and p.biz_id = biz_id and p.version = version
     for update skip locked;
  if not found then
    if exists (
      select
        from taskledger.permit p
       where p.name = name and p.value = '' and p.kind = kind and p.biz_id = biz_id and p.version = version) then
      perform taskledger_internal.refuse_second_start(kind, biz_id);
    end if;
    return false;
  end if;
  if own.taken_at <= clock_timestamp() - taskledger_internal.permit_lasts() then
    update taskledger.permit p
       set n = p.n + 1, kind = null, biz_id = null, version = null, attempt = null, actor = null
     where p.name = name and p.value = '' and p.slot = own.slot and p.n = own.n;
    return false;
  end if;
  if own.actor is distinct from actor then
    perform taskledger_internal.refuse_second_start(kind, biz_id);
  end if;
  update taskledger.permit p
     set n = p.n + 1, taken_at = default, attempt = attempt
   where p.name = name and p.value = '' and p.slot = own.slot and p.n = own.n;
  return true;
end
$$;

COMMENT ON FUNCTION taskledger_internal.keep_own_permit(name text, kind text, biz_id text, version integer, attempt integer, actor text) IS 'Renews the permit that a worker took for an attempt before its first event. Returns false if there is none or it has expired, and raises TL008 if it is another worker''s.';

CREATE FUNCTION taskledger_internal.keep_permit(name text, value text, kind text, biz_id text, before integer, version integer, attempt integer) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_variable
begin
  if value = '' then
    update taskledger.permit q
       set n = q.n + 1, taken_at = default, version = version, attempt = attempt
      from (
        select p.slot, p.n
          from taskledger_internal.newest_permits(name, value) p
         where p.kind = kind and p.biz_id = biz_id and p.attempt = before
           and taskledger_internal.args_version(kind, biz_id) <= p.version
         limit 1) held
     where q.name = name and q.value = value and q.slot = held.slot and q.n = held.n;
    return found;
  end if;
  insert into taskledger.permit (name, value, slot, n, kind, biz_id, version, attempt)
  select name, value, p.slot, p.n + 1, kind, biz_id, version, attempt
    from taskledger_internal.newest_permits(name, value) p
   where p.kind = kind and p.biz_id = biz_id and p.attempt = before
     and taskledger_internal.args_version(kind, biz_id) <= p.version
   limit 1;
  return found;
end
$$;

COMMENT ON FUNCTION taskledger_internal.keep_permit(name text, value text, kind text, biz_id text, before integer, version integer, attempt integer) IS 'Passes the permit of a task''s last attempt on to the next one. Returns false if it has none.';

CREATE FUNCTION taskledger_internal.key_hash(kind text, biz_id text) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN (encode(SUBSTRING(sha256(convert_to(((kind || '/'::text) || biz_id), 'UTF8'::name)) FROM 1 FOR 16), 'hex'::text))::uuid;

COMMENT ON FUNCTION taskledger_internal.key_hash(kind text, biz_id text) IS 'Returns the hash by which archived_key stores a key: the first 16 bytes of the SHA-256 of kind/biz_id.';

CREATE FUNCTION taskledger_internal.key_rest(kind text, biz_id text) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN ((('x'::text || encode(SUBSTRING(sha256(convert_to(((kind || '/'::text) || biz_id), 'UTF8'::name)) FROM 17 FOR 8), 'hex'::text)))::bit(64))::bigint;

COMMENT ON FUNCTION taskledger_internal.key_rest(kind text, biz_id text) IS 'Returns the 8 bytes of the SHA-256 of kind/biz_id that follow key_hash.';

CREATE FUNCTION taskledger_internal.last_archived() RETURNS integer
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if pg_sequence_last_value('taskledger.archived_until'::regclass) is null then
    return 0;
  end if;
  return (select coalesce(max(b.id), 0) from taskledger.archive_batch b);
end
$$;

COMMENT ON FUNCTION taskledger_internal.last_archived() IS 'Returns the id of the last batch that the archive has removed, 0 if none.';

CREATE FUNCTION taskledger_internal.last_crash() RETURNS text
    LANGUAGE sql STABLE
    RETURN CASE WHEN (to_regproc('pg_catalog.aurora_version'::text) IS NULL) THEN ''::text ELSE ((COALESCE((EXTRACT(epoch FROM pg_stat_get_bgwriter_stat_reset_time()))::text, ''::text) || '/'::text) || EXTRACT(epoch FROM pg_postmaster_start_time())) END;

COMMENT ON FUNCTION taskledger_internal.last_crash() IS 'Returns a text that changes with each crash recovery where unlogged tables survive it; elsewhere an empty one.';

CREATE FUNCTION taskledger_internal.late_shares(late xid8[], after_position bigint, top bigint, how_many integer) RETURNS TABLE(xid xid8, events integer)
    LANGUAGE plpgsql STABLE ROWS 20
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
declare
  chunk integer := greatest(2 * how_many / cardinality(late), 16);
  chunks integer[] := array_fill(chunk, array[cardinality(late)]);  -- how much of each transaction is read
  ends bigint[];                                                    -- how far each is read
  lowest bigint;                                                    -- of ends
  positions bigint[];                                               -- of the events found
  owners integer[];                                                 -- their transactions, as indexes of late
  found bigint[];
  i integer;
begin
  with run as materialized (
    select t.n, array(
             select e.position
               from taskledger.event e
              where (e.xid, e.position) > (t.x, after_position) and (e.xid, e.position) <= (t.x, top)
              order by e.xid, e.position
              limit chunk) as found
      from unnest(late) with ordinality t(x, n)
  )
  select array(select coalesce(r.found[chunk], top) from run r order by r.n), array_agg(f.position), array_agg(f.n)
    into ends, positions, owners
    from (select r.n, unnest(r.found) as position from run r) f;
  lowest := (select min(e) from unnest(ends) e);
  while lowest < top and (select count(*) from unnest(positions) p where p <= lowest) < how_many loop
    i := array_position(ends, lowest);
    found := array(
      select e.position
        from taskledger.event e
       where (e.xid, e.position) > (late[i], lowest) and (e.xid, e.position) <= (late[i], top)
       order by e.xid, e.position
       limit chunks[i]);
    ends[i] := coalesce(found[chunks[i]], top);
    chunks[i] := 2 * chunks[i];
    positions := positions || found;
    owners := owners || array_fill(i, array[cardinality(found)]);
    lowest := (select min(e) from unnest(ends) e);
  end loop;
  return query
  select late[f.owner], count(*)::integer
    from (select f.owner from unnest(positions, owners) f(position, owner) order by f.position limit how_many) f
   group by f.owner;
end
$$;

COMMENT ON FUNCTION taskledger_internal.late_shares(late xid8[], after_position bigint, top bigint, how_many integer) IS 'Returns, for each transaction, how many of the next how_many events up to position top are its own.';

CREATE FUNCTION taskledger_internal.late_xids(seen pg_snapshot, seen_bound xid8, below xid8 DEFAULT pg_snapshot_xmax(pg_current_snapshot())) RETURNS SETOF xid8
    LANGUAGE plpgsql IMMUTABLE ROWS 20 PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return query
  select x from pg_snapshot_xip(late_xids.seen) x
  union
  select g::text::xid8
    from generate_series(pg_snapshot_xmax(late_xids.seen)::text::bigint,
                         least(late_xids.seen_bound, late_xids.below)::text::bigint - 1) g;
end
$$;

COMMENT ON FUNCTION taskledger_internal.late_xids(seen pg_snapshot, seen_bound xid8, below xid8) IS 'Returns the transaction ids that a window must read one by one: ids running in the snapshot seen, and ids below below that were assigned between it and seen_bound.';

CREATE FUNCTION taskledger_internal.lease_kinds(detail json) RETURNS text[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
  if json_typeof(detail->'kinds') is distinct from 'array' or octet_length(detail::text) > 1048576 or exists (
      select from json_array_elements(detail->'kinds') k(kind) where json_typeof(k.kind) <> 'string') then
    return null;
  end if;
  if coalesce(json_typeof(detail->'shards'), 'string') <> 'string'
      or detail->>'shards' !~ '^(all|[0-9]{1,2}(-[0-9]{1,2})?(,[0-9]{1,2}(-[0-9]{1,2})?)*)?$'
      or exists (
      select from json_each(coalesce(detail->'guarantees', '{}')) g(name, kinds)
       where g.name not in ('exactly once', 'at least once', 'at most once') or json_typeof(g.kinds) <> 'array'
          or exists (select from json_array_elements(g.kinds) k(kind) where json_typeof(k.kind) <> 'string')) then
    return null;
  end if;
  if exists (
      select from json_to_recordset(coalesce(detail->'repeating', '[]'))
               as r(kind text, biz_id text, times integer, since timestamptz, error text)
       where num_nulls(r.kind, r.biz_id, r.times, r.since) > 0
          or r.kind not in (select k.kind from json_array_elements_text(detail->'kinds') k(kind))
          or r.since not between '1970-01-01 00:00:00+00' and '9999-01-01 00:00:00+00') then
    return null;
  end if;
  perform detail::jsonb; -- which functions use: it refuses some numbers and texts
  return array(select k.kind from json_array_elements_text(detail->'kinds') k(kind));
exception
  when others then
    return null;
end
$_$;

COMMENT ON FUNCTION taskledger_internal.lease_kinds(detail json) IS 'Returns the kinds in the detail of a worker''s lease; null if the detail is malformed.';

CREATE FUNCTION taskledger_internal.limit_value(per text, kind text, biz_id text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  of_run record;
begin
  if per is null then
    return '';
  end if;
  select e.partition, e.order_key into of_run
    from taskledger.event e
   where e.kind = limit_value.kind and e.biz_id = limit_value.biz_id
     and e.version = taskledger_internal.args_version(limit_value.kind, limit_value.biz_id);
  return nullif(case per when 'partition' then of_run.partition::text else of_run.order_key end, '');
end
$$;

COMMENT ON FUNCTION taskledger_internal.limit_value(per text, kind text, biz_id text) IS 'Returns the value under which a limit counts a task: empty for a limit with one count, null if a limit per a column does not apply to the task.';

CREATE FUNCTION taskledger_internal.line_before(order_key text, before bigint, most integer) RETURNS TABLE(kind text, biz_id text, type taskledger.event_type, since timestamp with time zone, waiting bigint, is_more boolean, place bigint)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
begin
  return query
  with line as materialized (
    select t.*, t.is_held or t.resumes as is_taken
      from taskledger_internal.line_turns(array[line_before.order_key]) t
  ), ahead as materialized (
    select not exists (
             select from taskledger.event n
              where n.kind = e.kind and n.biz_id = e.biz_id and n.version = e.version + 1) as waits
      from line
     cross join lateral (
       select f.kind, f.biz_id, f.version
         from taskledger.event f
        where f.order_key = line_before.order_key and f.type = 'lined_up' and f.position > line.place
          and f.position < line_before.before and (not line.resumes or (f.kind, f.biz_id) <> (line.kind, line.biz_id))
        order by f.position
        limit line_before.most + 1) e
  )
  select case when l.is_taken then l.kind end, case when l.is_taken then l.biz_id end,
         case when l.is_taken then l.type end,
         case when l.is_taken then (
           select h.recorded_at
             from taskledger.event h
            where h.kind = l.kind and h.biz_id = l.biz_id
              and h.version = case when l.type = 'buried' or l.resumes then l.head else t.version end) end,
         (select count(*) from ahead a where a.waits), (select count(*) > line_before.most from ahead), l.place
    from line l
    left join lateral (
      select e.version
        from taskledger.event e
       where e.order_key = line_before.order_key and e.type = 'released' and e.order_key is not null
         and starts_with(e.data::text, '{"reason":"turn"')
       order by e.position desc
       limit 1) t on true;
end
$$;

COMMENT ON FUNCTION taskledger_internal.line_before(order_key text, before bigint, most integer) IS 'Returns the task of this order key whose turn it is, with the type of its last event and when its turn began or it died (null: the line is free), how many tasks wait before this position, whether they are more than most, and the place after which tasks wait.';

CREATE FUNCTION taskledger_internal.line_turns(order_keys text[]) RETURNS TABLE(order_key text, kind text, biz_id text, head integer, type taskledger.event_type, attempt integer, shard smallint, priority smallint, partition text, is_held boolean, resumes boolean, place bigint, seen text, bound text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
begin
  return query
  select k.order_key, t.kind, t.biz_id, h.version, h.type, h.attempt, h.shard, h.priority, h.partition::text,
         coalesce(h.order_key = k.order_key and (
           h.type in ('released', 'started', 'progressed', 'failed', 'snoozed', 'interrupted')
           or h.type = 'buried' and not (
             select taskledger_internal.passes_if_dead(a.meta)
               from taskledger.event a
              where a.kind = t.kind and a.biz_id = t.biz_id
                and a.version = taskledger_internal.args_version(t.kind, t.biz_id))), false),
         coalesce(h.order_key = k.order_key and h.type = 'lined_up' and h.run is null and exists (
           select from taskledger.event b
            where b.kind = t.kind and b.biz_id = t.biz_id and b.version = h.version - 1 and b.type = 'buried'), false),
         coalesce((t.data ->> 'place')::bigint, 0), t.data ->> 'seen', t.data ->> 'bound'
    from unnest(line_turns.order_keys) k(order_key)
    left join lateral (
      select e.kind, e.biz_id, e.data
        from taskledger.event e
       where e.order_key = k.order_key and e.type = 'released' and e.order_key is not null
         and starts_with(e.data::text, '{"reason":"turn"')
       order by e.position desc
       limit 1) t on true
    left join lateral (
      select e.version, e.type, e.attempt, e.shard, e.priority, e.partition, e.order_key, e.run
        from taskledger.event e
       where e.kind = t.kind and e.biz_id = t.biz_id
       order by e.version desc
       limit 1) h on true;
end
$$;

COMMENT ON FUNCTION taskledger_internal.line_turns(order_keys text[]) IS 'Returns, for each order key, the task that had the newest turn (null: none) with its last event, whether it still is its turn, whether it was dead in its turn and has been released, and where the search for the next task begins.';

CREATE FUNCTION taskledger_internal.lock_archive() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform from taskledger.mutex m where m.name = 'archive' for update;
end
$$;

COMMENT ON FUNCTION taskledger_internal.lock_archive() IS 'Makes runs of the archive take turns, until the transaction ends.';

CREATE FUNCTION taskledger_internal.lock_cursor(reader text) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '5s'
    AS $$
declare
  newest bigint;
  locked bigint;
begin
  loop
    newest := (select c.n from taskledger.cursor c where c.reader = lock_cursor.reader order by c.n desc limit 1);
    if newest is null or newest = locked then
      return newest;
    end if;
    perform from taskledger.cursor c where c.reader = lock_cursor.reader and c.n = newest for update;
    locked := newest;
  end loop;
exception
  when lock_not_available then
    raise exception 'taskledger: subscriber % has been handling events in a transaction for more than 5 s',
      substr(reader, 12) using errcode = 'lock_not_available',
      hint = 'Try again when its handler is done, or end its process before.';
end
$$;

COMMENT ON FUNCTION taskledger_internal.lock_cursor(reader text) IS 'Locks the newest cursor row of a subscriber, so that no process moves it, and returns its n; null: none.';

CREATE FUNCTION taskledger_internal.lock_in_turn(kind text, above integer, turn text, how_many integer, OUT priority integer, OUT biz_ids text[], OUT partitions text[], OUT turns text[]) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.lock_in_turn(kind text, above integer, turn text, how_many integer, OUT priority integer, OUT biz_ids text[], OUT partitions text[], OUT turns text[]) IS 'Locks at most how_many tasks of the next priority after one in the list of unfinished tasks that may be claimed, of each partition in turn as many as its weight, beginning after a partition. Returns their priority, and for each task the partition after which the next call begins if the task is the last to be claimed. The priority is null at the end of the list, or if no task of the list has a partition.';

CREATE FUNCTION taskledger_internal.lock_seal() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform from taskledger.mutex m where m.name = 'seal' for update;
end
$$;

COMMENT ON FUNCTION taskledger_internal.lock_seal() IS 'Locks the seal against other transactions that seal or erase, until the transaction ends.';

CREATE FUNCTION taskledger_internal.lock_waiting(kind text, listed_priority integer, listed_partition text, listed bigint, at timestamp with time zone, after bigint, page integer, how_many integer, OUT biz_ids text[], OUT entries integer, OUT last_priority integer, OUT last_partition text, OUT last bigint, OUT is_end boolean, OUT newest timestamp with time zone) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.lock_waiting(kind text, listed_priority integer, listed_partition text, listed bigint, at timestamp with time zone, after bigint, page integer, how_many integer, OUT biz_ids text[], OUT entries integer, OUT last_priority integer, OUT last_partition text, OUT last bigint, OUT is_end boolean, OUT newest timestamp with time zone) IS 'Reads the next entries of a kind in the list of unfinished tasks after a priority, a partition and a position, or the next events of all kinds after a moment and a position, at most page of them. Locks the first how_many tasks among them that may be claimed, against other calls until the transaction ends. Returns these in the order in which they begin, how many entries there were, priority, partition and position of the last, whether there are no more, and the time of the newest moment.';

CREATE FUNCTION taskledger_internal.lock_workers(kinds text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform taskledger_internal.check_kinds(lock_workers.kinds, true);
  insert into taskledger.mutex (name)
  select 'workers/' || k.kind from unnest(lock_workers.kinds) k(kind) order by k.kind collate "C"
      on conflict do nothing;
  perform from taskledger.mutex m
    where m.name in (select 'workers/' || k.kind from unnest(lock_workers.kinds) k(kind))
    order by m.name
      for update;
end
$$;

COMMENT ON FUNCTION taskledger_internal.lock_workers(kinds text[]) IS 'Locks workers of these kinds that take their first lease against each other, until the transaction ends.';

CREATE FUNCTION taskledger_internal.locked_events(kinds text[], biz_ids text[], expected integer[], types text[], actors text[]) RETURNS SETOF bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '1ms'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.locked_events(kinds text[], biz_ids text[], expected integer[], types text[], actors text[]) IS 'Returns the numbers of the events that cannot be appended after versions expected now, because other transactions have their keys locked. Appends nothing.';

CREATE FUNCTION taskledger_internal.lost_holders(kind text) RETURNS SETOF text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
begin
  perform taskledger_internal.check_kinds(array[lost_holders.kind], true);
  return query
  select p.biz_id
    from taskledger.limited_kind k
    join taskledger.permits p on p.name = k.name
   where k.kind = lost_holders.kind and p.kind = lost_holders.kind and p.is_recorded
     and not exists (
       select from taskledger_internal.worker_alive_ms(p.actor, lost_holders.kind) w where w.alive_ms > 0)
   group by p.biz_id
   order by min(p.taken_at);
end
$$;

COMMENT ON FUNCTION taskledger_internal.lost_holders(kind text) IS 'Returns the tasks of a kind that hold a permit and whose workers are gone.';

CREATE FUNCTION taskledger_internal.make_slot(name text, value text, slot integer) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '1ms'
    AS $$
#variable_conflict use_variable
begin
  insert into taskledger.permit (name, value, slot, n) values (name, value, slot, 0)
      on conflict on constraint permit_pkey do nothing;
  return found;
exception when lock_not_available then
  return null;
end
$$;

COMMENT ON FUNCTION taskledger_internal.make_slot(name text, value text, slot integer) IS 'Makes a slot of a value. Returns false if it exists, null if an open transaction makes it.';

CREATE FUNCTION taskledger_internal.make_token(ring bigint, value text, n bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET lock_timeout TO '1ms'
    AS $$
#variable_conflict use_variable
begin
  insert into taskledger.start_token (ring, value, n, taken_at) values (ring, value, n, '-infinity')
      on conflict on constraint start_token_pkey do nothing;
  return found;
exception when lock_not_available then
  return null;
end
$$;

COMMENT ON FUNCTION taskledger_internal.make_token(ring bigint, value text, n bigint) IS 'Makes a token of a value. Returns false if it exists, null if an open transaction makes it.';

CREATE FUNCTION taskledger_internal.mark_feed(reader text, mark json) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  of_cursor text := taskledger_internal.subscriber_reader(reader);
  newest bigint;
  c record;
begin
  newest := taskledger_internal.lock_cursor(of_cursor);
  select n.n, n.seen, n.seen_top, n.seen_bound, n.until, n.top, n.bound, n.after_position, n.login into c
    from taskledger.cursor n where n.reader = of_cursor and n.n = newest;
  if c.n is null then
    return false;
  end if;
  if not taskledger_internal.append_cursor(of_cursor, c.n, c.seen, c.seen_top, c.seen_bound, c.until, c.top, c.bound,
                                           c.after_position, mark_feed.mark, c.login) then
    raise exception 'taskledger: subscriber % is being moved by another session', reader
      using errcode = 'serialization_failure', hint = 'Try again.';
  end if;
  return true;
end
$$;

COMMENT ON FUNCTION taskledger_internal.mark_feed(reader text, mark json) IS 'Replaces the mark of a subscriber, such as {"paused":true}, leaves its place, and reports whether there is such a subscriber.';

CREATE FUNCTION taskledger_internal.may_add_subscriber(reader text, n bigint) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  max_subscribers constant integer := 250;
  counted integer;
begin
  if n > 1 then
    return true;
  end if;
  insert into taskledger.mutex (name) values ('subscribers/' || session_user) on conflict do nothing;
  perform from taskledger.mutex m where m.name = 'subscribers/' || session_user for update;
  select count(*) into counted
    from (select from taskledger.subscribers s
           where s.login = session_user and s.name <> substr(may_add_subscriber.reader, 12)
           limit max_subscribers) own;
  if counted >= max_subscribers then
    raise exception 'taskledger: login % has % subscribers, and may have no more', session_user, counted
      using errcode = 'insufficient_privilege',
            hint = 'remove one: taskledger delete subscriber NAME; or connect as another login';
  end if;
  return true;
end
$$;

COMMENT ON FUNCTION taskledger_internal.may_add_subscriber(reader text, n bigint) IS 'Returns true if the session''s login may have one more subscriber, or the row is not its subscriber''s first. Raises an error otherwise: reading the lags of all subscribers must not take long because of one login.';

CREATE FUNCTION taskledger_internal.may_claim(worker text, kind text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_variable
begin
  if exists (
      select from taskledger.lease l
       where l.name = 'worker/' || worker and (l.detail->'admitted')::jsonb ? kind) then
    return true;
  end if;
  if exists (
      select from taskledger.lease l
       where l.name like 'worker/%' and l.alive_until > clock_timestamp() and l.detail->>'key' is not null
         and case when kind = any (taskledger_internal.lease_kinds(l.detail)) -- first: it finds what jsonb refuses
                  then ((l.detail->'records')::jsonb ? kind) is not true end) then
    return false;
  end if;
  update taskledger.lease l
     set detail = l.detail::jsonb || jsonb_build_object(
           'admitted', coalesce((l.detail->'admitted')::jsonb, '[]') || to_jsonb(kind))
   where l.name = 'worker/' || worker;
  return true;
end
$$;

COMMENT ON FUNCTION taskledger_internal.may_claim(worker text, kind text) IS 'Returns whether a worker may claim tasks of a kind: each live worker that asks the dispatcher for them records their starts first.';

CREATE FUNCTION taskledger_internal.may_exceed_limit(kind text, biz_id text, version integer, type taskledger.event_type) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.may_exceed_limit(kind text, biz_id text, version integer, type taskledger.event_type) IS 'Returns true for the event of a task over the limit of its kind that the session may run, or must discard in the same transaction. Raises SQLSTATE 53400 if it must not begin.';

CREATE FUNCTION taskledger_internal.may_follow(type taskledger.event_type, last taskledger.event_type) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE((last = ANY (CASE type WHEN 'scheduled'::taskledger.event_type THEN '{scheduled,snoozed,failed,enqueued,released,interrupted,lined_up}'::taskledger.event_type[] WHEN 'lined_up'::taskledger.event_type THEN '{scheduled,snoozed,buried,cancelled,expired,discarded}'::taskledger.event_type[] WHEN 'released'::taskledger.event_type THEN '{scheduled,snoozed,failed,enqueued,released,interrupted,buried,cancelled,expired,discarded}'::taskledger.event_type[] WHEN 'buried'::taskledger.event_type THEN '{scheduled,snoozed,failed,enqueued,released,interrupted,started,progressed,lined_up}'::taskledger.event_type[] WHEN 'cancelled'::taskledger.event_type THEN '{scheduled,snoozed,failed,enqueued,released,interrupted,started,progressed,lined_up}'::taskledger.event_type[] WHEN 'expired'::taskledger.event_type THEN '{scheduled,snoozed,failed,enqueued,released,interrupted,lined_up}'::taskledger.event_type[] WHEN 'discarded'::taskledger.event_type THEN '{scheduled,snoozed,enqueued,released,interrupted,started,progressed,lined_up}'::taskledger.event_type[] WHEN 'enqueued'::taskledger.event_type THEN '{}'::taskledger.event_type[] ELSE '{enqueued,released,interrupted,started,progressed}'::taskledger.event_type[] END)), false);

COMMENT ON FUNCTION taskledger_internal.may_follow(type taskledger.event_type, last taskledger.event_type) IS 'Returns whether an event of type may follow one of type last.';

CREATE FUNCTION taskledger_internal.may_have_lease(name text, detail json) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  max_parts constant integer := 2000;
  part constant integer := 4096;
  parts constant bigint := 1 + octet_length(detail::text) / part;
  counted bigint;
begin
  if exists (
      select from taskledger.lease l
       where l.name = may_have_lease.name and l.login = session_user and l.alive_until > clock_timestamp()
         and 1 + octet_length(l.detail::text) / part >= parts) then
    return true;
  end if;
  insert into taskledger.mutex (name) values ('leases/' || session_user) on conflict do nothing;
  perform from taskledger.mutex m where m.name = 'leases/' || session_user for update;
  select coalesce(sum(1 + octet_length(l.detail::text) / part), 0) into counted
    from taskledger.lease l
   where l.login = session_user and l.alive_until > clock_timestamp() and l.name <> may_have_lease.name;
  if counted + parts > max_parts then
    raise exception 'taskledger: login % has % leases of workers that have not ended, and may have no more',
                    session_user, counted
      using errcode = 'insufficient_privilege',
            hint = 'end workers, or run more of them as another login; a lease counts once for each 4 kB of its detail';
  end if;
  return true;
end
$$;

COMMENT ON FUNCTION taskledger_internal.may_have_lease(name text, detail json) IS 'Returns true if the session''s login may have one more lease of a worker, and raises an error otherwise: reading all leases must not take long because of one login. A worker holds one lease, and one more if it divides shards.';

CREATE TABLE taskledger.kind_hour (
    hour timestamp with time zone NOT NULL,
    enqueued bigint NOT NULL,
    started bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    dead bigint NOT NULL,
    cancelled bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE taskledger.kind_hour IS 'Events by kind and hour, without histograms: the sums of kind_stats. Append-only: add up all rows of a kind and hour.';

CREATE TABLE taskledger.kind_stats (
    minute timestamp with time zone NOT NULL,
    enqueued bigint NOT NULL,
    started bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    dead bigint NOT NULL,
    cancelled bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    waiting bigint[],
    running bigint[],
    first_position bigint,
    last_position bigint
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE taskledger.kind_stats IS 'Events by kind and minute, and histograms of waiting and running times. Append-only: add up all rows of a kind and minute. The minutes of archived tasks are merged by hour, in its first minute.';

CREATE FUNCTION taskledger_internal.merge_kind_stats(since timestamp with time zone, before timestamp with time zone) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 WITH gone AS (
          DELETE FROM taskledger.kind_stats s
            USING ( SELECT m.minute,
                     m.kind
                    FROM taskledger.kind_stats m
                   WHERE ((m.minute >= merge_kind_stats.since) AND (m.minute < merge_kind_stats.before))
                   GROUP BY m.minute, m.kind
                  HAVING (count(*) > 1)) many
           WHERE ((s.minute = many.minute) AND (s.kind = many.kind))
           RETURNING s.minute,
             s.enqueued,
             s.started,
             s.succeeded,
             s.failed,
             s.dead,
             s.cancelled,
             s.kind,
             s.waiting,
             s.running,
             s.first_position,
             s.last_position
         )
  INSERT INTO taskledger.kind_stats (minute, kind, enqueued, started, succeeded, failed, dead, cancelled, waiting, running, first_position, last_position)  SELECT t.minute,
             t.kind,
             t.enqueued,
             t.started,
             t.succeeded,
             t.failed,
             t.dead,
             t.cancelled,
             ( SELECT array_agg(b.n ORDER BY b.i) AS array_agg
                    FROM ( SELECT u.i,
                             (sum(u.n))::bigint AS n
                            FROM (gone g
                              CROSS JOIN LATERAL unnest(g.waiting) WITH ORDINALITY u(n, i))
                           WHERE ((g.minute = t.minute) AND (g.kind = t.kind))
                           GROUP BY u.i) b) AS array_agg,
             ( SELECT array_agg(b.n ORDER BY b.i) AS array_agg
                    FROM ( SELECT u.i,
                             (sum(u.n))::bigint AS n
                            FROM (gone g
                              CROSS JOIN LATERAL unnest(g.running) WITH ORDINALITY u(n, i))
                           WHERE ((g.minute = t.minute) AND (g.kind = t.kind))
                           GROUP BY u.i) b) AS array_agg,
             t.first_position,
             t.last_position
            FROM ( SELECT g.minute,
                     g.kind,
                     sum(g.enqueued) AS enqueued,
                     sum(g.started) AS started,
                     sum(g.succeeded) AS succeeded,
                     sum(g.failed) AS failed,
                     sum(g.dead) AS dead,
                     sum(g.cancelled) AS cancelled,
                     min(g.first_position) AS first_position,
                     max(g.last_position) AS last_position
                    FROM gone g
                   GROUP BY g.minute, g.kind) t;
 WITH gone AS (
          DELETE FROM taskledger.kind_hour s
            USING ( SELECT m.hour,
                     m.kind
                    FROM taskledger.kind_hour m
                   WHERE ((m.hour >= date_bin('01:00:00'::interval, merge_kind_stats.since, '1970-01-01 00:00:00+00'::timestamp with time zone)) AND (m.hour < merge_kind_stats.before))
                   GROUP BY m.hour, m.kind
                  HAVING (count(*) > 1)) many
           WHERE ((s.hour = many.hour) AND (s.kind = many.kind))
           RETURNING s.hour,
             s.enqueued,
             s.started,
             s.succeeded,
             s.failed,
             s.dead,
             s.cancelled,
             s.kind
         )
  INSERT INTO taskledger.kind_hour (hour, kind, enqueued, started, succeeded, failed, dead, cancelled)  SELECT g.hour,
             g.kind,
             sum(g.enqueued) AS sum,
             sum(g.started) AS sum,
             sum(g.succeeded) AS sum,
             sum(g.failed) AS sum,
             sum(g.dead) AS sum,
             sum(g.cancelled) AS sum
            FROM gone g
           GROUP BY g.hour, g.kind;
END;

COMMENT ON FUNCTION taskledger_internal.merge_kind_stats(since timestamp with time zone, before timestamp with time zone) IS 'Merges the rows of kind_stats of each kind and minute in a range of minutes that have passed, and the rows of kind_hour of each kind and hour in that range.';

CREATE FUNCTION taskledger_internal.merge_minutes(since timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_variable
declare
  before constant timestamptz := date_bin('1 hour', least(taskledger_internal.archived_before(),
                                                          clock_timestamp() - interval '2 days'), 'epoch');
  at timestamptz := coalesce(since, '-infinity');
  due timestamptz;
begin
  if taskledger_internal.archived_before() is null then
    return null;
  end if;
  loop
    select s.minute into at
      from taskledger.kind_stats s
     where s.minute > at and s.minute < before
     order by s.minute
     limit 1;
    if not found then
      return null;
    end if;
    due := date_bin('1 hour', at, 'epoch');
    exit when at > due;
  end loop;
  with locked as materialized (
    select s.ctid
      from taskledger.kind_stats s
     where s.minute >= due and s.minute < due + interval '1 hour'
       for update skip locked
  ), gone as materialized (
    delete from taskledger.kind_stats s
     where s.ctid = any (array(select l.ctid from locked l))
    returning s.*
  )
  insert into taskledger.kind_stats
         (minute, kind, enqueued, started, succeeded, failed, dead, cancelled, waiting, running, first_position,
          last_position)
  select due, t.kind, t.enqueued, t.started, t.succeeded, t.failed, t.dead, t.cancelled, w.buckets, r.buckets,
         t.first_position, t.last_position
    from (
     select g.kind, sum(g.enqueued) as enqueued, sum(g.started) as started, sum(g.succeeded) as succeeded,
            sum(g.failed) as failed, sum(g.dead) as dead, sum(g.cancelled) as cancelled,
            min(g.first_position) as first_position, max(g.last_position) as last_position
       from gone g
      group by g.kind) t
    left join (
     select b.kind, array_agg(b.n order by b.i) as buckets
       from (
        select g.kind, u.i, sum(u.n)::bigint as n
          from gone g
         cross join lateral unnest(g.waiting) with ordinality u(n, i)
         group by g.kind, u.i) b
      group by b.kind) w on w.kind = t.kind
    left join (
     select b.kind, array_agg(b.n order by b.i) as buckets
       from (
        select g.kind, u.i, sum(u.n)::bigint as n
          from gone g
         cross join lateral unnest(g.running) with ordinality u(n, i)
         group by g.kind, u.i) b
      group by b.kind) r on r.kind = t.kind;
  return due + interval '59 minutes';
end
$$;

COMMENT ON FUNCTION taskledger_internal.merge_minutes(since timestamp with time zone) IS 'Merges the minutes of the first hour after a moment, or of the first of all, whose tasks may have been archived, in kind_stats. Returns its last minute; null: there is none.';

CREATE FUNCTION taskledger_internal.newest_of(kind text, biz_id text, types taskledger.event_type[]) RETURNS integer
    LANGUAGE sql STABLE
    BEGIN ATOMIC
 SELECT COALESCE(max(v.version), 0) AS "coalesce"
    FROM ( SELECT l.version
            FROM (unnest(newest_of.types) t(type)
              CROSS JOIN LATERAL ( SELECT e.version
                    FROM taskledger.event e
                   WHERE ((e.kind = newest_of.kind) AND (e.biz_id = newest_of.biz_id) AND (e.type = t.type) AND (e.version > 64))
                   ORDER BY e.version DESC
                  LIMIT 1) l)
         UNION ALL
         ( SELECT f.version
            FROM taskledger.event f
           WHERE ((f.kind = newest_of.kind) AND (f.biz_id = newest_of.biz_id) AND (f.type = ANY (newest_of.types)) AND (f.version <= 64))
           ORDER BY f.version DESC
          LIMIT 1)) v;
END;

COMMENT ON FUNCTION taskledger_internal.newest_of(kind text, biz_id text, types taskledger.event_type[]) IS 'Returns the version of the newest event of a task that has one of these types, or 0.';

CREATE TABLE taskledger.permit (
    n bigint NOT NULL,
    taken_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    slot integer NOT NULL,
    version integer,
    attempt integer,
    name text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL COLLATE pg_catalog."C",
    kind text COLLATE pg_catalog."C",
    biz_id text COLLATE pg_catalog."C",
    actor text COLLATE pg_catalog."C",
    CONSTRAINT permit_slot_check CHECK ((slot > 0))
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_cost_delay='0');

COMMENT ON TABLE taskledger.permit IS 'Internal: who holds which slot of a limit, or held it last. The row with the highest n of each slot counts. name and value: of the limit; value is empty if the limit has one count. kind and biz_id: of the holder, null if there has been none. attempt: of the holder, null until its start is recorded. version: of the first event of the attempt. actor: the worker, if it took the permit before that event.';

CREATE FUNCTION taskledger_internal.newest_permits(name text, value text) RETURNS TABLE(slot integer, n bigint, kind text, biz_id text, version integer, attempt integer, taken_at timestamp with time zone)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 SELECT p.slot,
     p.n,
     p.kind,
     p.biz_id,
     p.version,
     p.attempt,
     p.taken_at
    FROM (generate_series(1, ( SELECT q.slot
            FROM taskledger.permit q
           WHERE ((q.name = newest_permits.name) AND (q.value = newest_permits.value))
           ORDER BY q.slot DESC
          LIMIT 1)) s(slot)
      CROSS JOIN LATERAL ( SELECT q.slot,
             q.n,
             q.kind,
             q.biz_id,
             q.version,
             q.attempt,
             q.taken_at
            FROM taskledger.permit q
           WHERE ((q.name = newest_permits.name) AND (q.value = newest_permits.value) AND (q.slot = s.slot))
           ORDER BY q.n DESC
          LIMIT 1) p);
END;

COMMENT ON FUNCTION taskledger_internal.newest_permits(name text, value text) IS 'Returns the newest row of each slot of a limit''s value, whether or not its attempt runs.';

CREATE FUNCTION taskledger_internal.next_id(kind text, biz_id text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    RETURN CASE WHEN ((octet_length(kind) + octet_length(biz_id)) < 255) THEN ((kind || '/'::text) || biz_id) ELSE ('#'::text || encode(sha256(convert_to(((kind || '/'::text) || biz_id), 'UTF8'::name)), 'hex'::text)) END;

COMMENT ON FUNCTION taskledger_internal.next_id(kind text, biz_id text) IS 'Returns the biz_id of the task of kind taskledger.next that stands for the next run of a task.';

CREATE FUNCTION taskledger_internal.note_limit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform nextval('taskledger.limits_set');
  return new;
end
$$;

COMMENT ON FUNCTION taskledger_internal.note_limit() IS 'The trigger that notes that a limit is set.';

CREATE FUNCTION taskledger_internal.number_value(number text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
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
$_$;

COMMENT ON FUNCTION taskledger_internal.number_value(number text) IS 'Returns a text that is the same for all notations of a JSON number, such as 5e2 for 500.0.';

CREATE FUNCTION taskledger_internal.origin() RETURNS text
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return (select c.system_identifier::text from pg_control_system() c) || '/'
      || (select d.oid::text from pg_database d where d.datname = current_database());
end
$$;

COMMENT ON FUNCTION taskledger_internal.origin() IS 'Returns <system identifier>/<database oid>. Transaction ids mean nothing outside of this database.';

CREATE FUNCTION taskledger_internal.overfull_entry(kinds text[], biz_ids text[], if_exists text[], later boolean[], insert_follows boolean) RETURNS TABLE(i bigint, policy text, waiting bigint, max_waiting bigint, retry_after_ms bigint)
    LANGUAGE plpgsql SECURITY DEFINER ROWS 1
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.overfull_entry(kinds text[], biz_ids text[], if_exists text[], later boolean[], insert_follows boolean) IS 'Returns an entry of a batch that must not be written because too many tasks of its kind wait: a new task, or the next run of a finished one; with the limit of its kind. later: whether an entry is due later, or waits for predecessors or in line. Returns nothing if all may be written.';

CREATE FUNCTION taskledger_internal.own_logins() RETURNS integer[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return array(select l.id from taskledger.login l where l.name = session_user);
end
$$;

COMMENT ON FUNCTION taskledger_internal.own_logins() IS 'Returns the ids of the session''s login.';

CREATE FUNCTION taskledger_internal.passes_if_dead(meta json) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return coalesce(strpos(meta::text, '"pass_if_dead"') > 0 and meta ->> 'pass_if_dead' = 'true', false);
exception when data_exception then
  return false;
end
$$;

COMMENT ON FUNCTION taskledger_internal.passes_if_dead(meta json) IS 'Returns whether the next task in line begins if a task with this meta is dead.';

CREATE FUNCTION taskledger_internal.pause_pushed(kind text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform taskledger_internal.check_kinds(array[pause_pushed.kind], true);
  insert into taskledger.pause (kind, actor, reason)
  values (pause_pushed.kind, session_user, 'the server of its tasks has answered 410 Gone')
  on conflict on constraint pause_pkey do nothing;
  return found;
end
$$;

COMMENT ON FUNCTION taskledger_internal.pause_pushed(kind text) IS 'Pauses a kind whose tasks are sent to a server that has answered 410 Gone, unless it is paused.';

CREATE FUNCTION taskledger_internal.pause_receiver(receiver text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.pause_receiver(receiver text) IS 'Pauses the deliveries of a receiver of webhooks that has answered 410 Gone, unless they are paused.';

CREATE FUNCTION taskledger_internal.permit_lasts() RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '00:00:10'::interval;

COMMENT ON FUNCTION taskledger_internal.permit_lasts() IS 'Returns how long an attempt holds its permits while it has no event.';

CREATE FUNCTION taskledger_internal.personal_digest(salt bytea, data text, meta text, actor text) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN sha256(((convert_to('taskledger personal data v1
'::text, 'UTF8'::name) || salt) || convert_to((((((('data '::text || COALESCE(((octet_length(data) || ' '::text) || data), '-'::text)) || '
meta '::text) || COALESCE(((octet_length(meta) || ' '::text) || meta), '-'::text)) || '
actor '::text) || COALESCE(((octet_length(actor) || ' '::text) || actor), '-'::text)) || '
'::text), 'UTF8'::name)));

COMMENT ON FUNCTION taskledger_internal.personal_digest(salt bytea, data text, meta text, actor text) IS 'Returns the digest of the personal data of an event, which its leaf covers.';

CREATE FUNCTION taskledger_internal.place(at timestamp with time zone, "position" bigint) RETURNS TABLE(seen pg_snapshot, seen_top bigint, seen_bound xid8, until pg_snapshot, top bigint, after_position bigint, bound xid8)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
declare
  since timestamptz := at;  -- the window ends at a moment since then
  of_xid xid8;              -- at which this transaction is visible
  low record;
  high record;
  probe record;
  past bigint;   -- the lowest position known to be recorded after the time
  middle bigint;
begin
  if place.position is not null then
    select case when e.position <= taskledger_internal.feed_floor() then '3'::xid8 else e.xid end, e.recorded_at
      into of_xid, since
      from taskledger.event e
     where e.position = place.position;
    if of_xid is null then
      return;
    end if;
  end if;
  select m.at, m.snapshot, m.top, m.bound into high
    from taskledger.moments m
   where m.at >= since
     and case when of_xid is null then m.at > since else pg_visible_in_snapshot(of_xid, m.snapshot) end
   order by m.at
   limit 1;
  if high.snapshot is null and pg_is_in_recovery() then
    raise exception 'taskledger: the database is a standby' using errcode = 'read_only_sql_transaction';
  end if;
  select m.snapshot, m.top, m.bound into low
    from taskledger.moments m
   where m.at < coalesce(high.at, 'infinity')
   order by m.at desc
   limit 1;
  seen := coalesce(low.snapshot, '3:3:'); seen_top := coalesce(low.top, 0); seen_bound := coalesce(low.bound, '3');
  until := coalesce(high.snapshot, pg_current_snapshot());
  top := coalesce(high.top, (select e.position from taskledger.event e order by e.position desc limit 1), 0);
  bound := high.bound;
  after_position := coalesce(place.position, seen_top);
  past := case when of_xid is null then greatest(top, seen_top) + 1 else after_position end;
  while past - after_position > 1 loop
    middle := after_position + (past - after_position) / 2;
    select e.position, e.recorded_at into probe
      from taskledger.event e
     where e.position >= middle and e.position < past
     order by e.position
     limit 1;
    if probe.position is null or probe.recorded_at > place.at then
      past := middle;
    else
      after_position := probe.position;
    end if;
  end loop;
  return next;
end
$$;

COMMENT ON FUNCTION taskledger_internal.place(at timestamp with time zone, "position" bigint) IS 'Returns the place of a time, or of an event by its position, in the order of commits: the columns of a cursor. No row without such an event. Null for bound means that it must be drawn now.';

CREATE FUNCTION taskledger_internal.policy_of(kind text, biz_id text, otherwise json) RETURNS json
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.policy_of(kind text, biz_id text, otherwise json) IS 'Returns the retry policy of a task: its own if that is valid, else otherwise, else the default.';

CREATE FUNCTION taskledger_internal.poll_place(worker text, kind text) RETURNS json
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return (select l.detail -> 'places' -> kind from taskledger.lease l where l.name = 'worker/' || worker);
end
$$;

COMMENT ON FUNCTION taskledger_internal.poll_place(worker text, kind text) IS 'Returns the place after which a worker continues to look for waiting tasks of a kind; null: none.';

CREATE FUNCTION taskledger_internal.position_before(moment timestamp with time zone) RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.position_before(moment timestamp with time zone) IS 'Returns about the last position whose event was recorded before a moment.';

CREATE FUNCTION taskledger_internal.position_behind() RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
begin
  return coalesce((
    select e.position
      from (select e.position from taskledger.event e order by e.position desc limit 1) e
     cross join taskledger.event_position_seq s
     where e.position > s.last_value or e.position = s.last_value and not s.is_called), 0);
end
$$;

COMMENT ON FUNCTION taskledger_internal.position_behind() IS 'Returns the newest position if the sequence of positions is behind it, so that enqueues fail, else 0.';

CREATE FUNCTION taskledger_internal.record_act(action text, actor text, reason text, detail json, tasks json DEFAULT NULL::json) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.record_act(action text, actor text, reason text, detail json, tasks json) IS 'Records an act of an operator as a task of kind taskledger.operation.';

CREATE FUNCTION taskledger_internal.redeem_link(secret text, session_hash bytea) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  perform taskledger_internal.commit_durably();
  delete from taskledger.token t
   where t.link_until is not null and t.expires_at < clock_timestamp() - interval '30 days';
  update taskledger.token t
     set hash = session_hash, redeemed_at = clock_timestamp()
   where t.id = split_part(secret, '_', 2) and t.hash = sha256(convert_to(secret, 'UTF8'))
     and t.link_until > clock_timestamp() and t.redeemed_at is null and t.revoked_at is null;
  return found;
end
$$;

COMMENT ON FUNCTION taskledger_internal.redeem_link(secret text, session_hash bytea) IS 'Exchanges the secret of a link, once, for the secret of a session. Returns false if the link is unknown, used, expired or revoked.';

CREATE FUNCTION taskledger_internal.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  raise exception 'taskledger.% is append-only: % refused', tg_table_name, tg_op
    using errcode = 'restrict_violation',
          hint = 'correct a fact by appending another event: events are never changed or removed';
end
$$;

COMMENT ON FUNCTION taskledger_internal.refuse_change() IS 'The trigger that keeps a table append-only.';

CREATE FUNCTION taskledger_internal.refuse_event_change() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.refuse_event_change() IS 'The trigger that keeps events unchanged: the archive alone removes them.';

CREATE FUNCTION taskledger_internal.refuse_overload(kind text, is_later boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.refuse_overload(kind text, is_later boolean) IS 'Raises the error that too many tasks of a kind wait, and counts it. is_later: scheduled tasks and tasks in line count, too.';

CREATE FUNCTION taskledger_internal.refuse_seal_change() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if tg_op = 'DELETE' and exists (
       select from taskledger.seal_cut c where c.xid = pg_current_xact_id_if_assigned() and age(c.xmin) <= 0) then
    return null;
  end if;
  raise exception 'taskledger.% is append-only: % refused', tg_table_name, tg_op
    using errcode = 'restrict_violation', hint = 'the archive alone removes rows, once it contains their tiles';
end
$$;

COMMENT ON FUNCTION taskledger_internal.refuse_seal_change() IS 'The trigger that keeps the seal unchanged: the archive alone removes rows.';

CREATE FUNCTION taskledger_internal.refuse_second_start(kind text, biz_id text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  raise exception 'taskledger: task %/% cannot start: another worker has just begun it', kind, biz_id
    using errcode = 'TL008', hint = 'try again in 10 s: if that worker is gone, the task can start then';
end
$$;

COMMENT ON FUNCTION taskledger_internal.refuse_second_start(kind text, biz_id text) IS 'Raises TL008, because another worker has a permit for the same attempt.';

CREATE FUNCTION taskledger_internal.refused_kind(kinds text[], of_login boolean) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
  worker constant name := case when of_login then session_user else current_user end;
  how constant text := case when of_login then 'member' else 'usage' end;
begin
  if not of_login and not row_security_active('taskledger.event')
     or of_login and exists (
          select from pg_roles r, pg_class c
           where r.rolname = session_user and c.oid = 'taskledger.event'::regclass
             and (r.rolbypassrls or pg_has_role(r.oid, c.relowner, 'member'))) then
    return null;
  end if;
  return (
    select k.kind
      from unnest(kinds) k(kind)
     where k.kind is not null and not exists (
       select from (
         select p.polname::text as name, obj_description(p.oid, 'pg_policy') as mark
           from pg_policy p
          where p.polrelid = 'taskledger.event'::regclass and p.polcmd in ('a', '*') and p.polpermissive
            and exists (select from unnest(p.polroles) r(id)
                         where case when r.id = 0 then true else pg_has_role(worker, r.id, how) end)) a
        where case
          when coalesce(a.mark, '') !~ '^taskledger migrate roles ' then true
          when a.mark !~ '=' then a.name ~ '_worker$'
          else exists (select from unnest(string_to_array(substring(a.mark from '=(.*)$'), ',')) l(kind)
                        where l.kind = k.kind or right(l.kind, 2) = '.*' and starts_with(k.kind, left(l.kind, -1)))
        end)
     limit 1);
end
$_$;

COMMENT ON FUNCTION taskledger_internal.refused_kind(kinds text[], of_login boolean) IS 'Returns the first of some kinds on which the current role may not work, or the session''s login; null if none.';

CREATE UNLOGGED SEQUENCE taskledger.asleep_until
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

COMMENT ON SEQUENCE taskledger.asleep_until IS 'Internal: until when the relay sleeps unless it is notified, in microseconds since 1970.';

CREATE FUNCTION taskledger_internal.relay_sleeps() RETURNS boolean
    LANGUAGE sql
    RETURN (to_timestamp(((pg_sequence_last_value('taskledger.asleep_until'::regclass))::double precision * (0.000001)::double precision)) > clock_timestamp());

COMMENT ON FUNCTION taskledger_internal.relay_sleeps() IS 'Returns whether the relay sleeps until it is notified; null if it never did.';

CREATE FUNCTION taskledger_internal.release_relay(holder text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  delete from taskledger.lease l where l.name = 'relay' and l.holder = release_relay.holder;
end
$$;

COMMENT ON FUNCTION taskledger_internal.release_relay(holder text) IS 'Removes the lease of the relay, if this holder has it.';

CREATE TABLE taskledger.timer (
    due_at timestamp with time zone NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    biz_id text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    reason text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT timer_reason_check CHECK ((reason = ANY (ARRAY['due'::text, 'retry'::text, 'start_by'::text, 'finish_by'::text, 'after'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE taskledger.timer IS 'One row for each event that the scheduler will append at due_at: a task''s release or expiry.';

CREATE FUNCTION taskledger_internal.remove_awaiting(kinds text[], biz_ids text[]) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 DELETE FROM taskledger.timer t
    USING UNNEST(remove_awaiting.kinds, remove_awaiting.biz_ids) k(kind, biz_id)
   WHERE ((t.due_at = taskledger_internal.end_of_time()) AND (t.kind = k.kind) AND (t.biz_id = k.biz_id) AND (t.reason = 'after'::text) AND (EXISTS ( SELECT
            FROM taskledger.event e
           WHERE ((e.kind = k.kind) AND (e.biz_id = k.biz_id) AND (e.version > t.version)))));
END;

COMMENT ON FUNCTION taskledger_internal.remove_awaiting(kinds text[], biz_ids text[]) IS 'Removes the timers of tasks with predecessors that were followed by another event of the task.';

CREATE FUNCTION taskledger_internal.remove_illegal_events(kind text, biz_id text) RETURNS SETOF integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  return query
  delete from taskledger.illegal_event i
   where i.kind = remove_illegal_events.kind and i.biz_id = remove_illegal_events.biz_id
  returning i.version;
end
$$;

COMMENT ON FUNCTION taskledger_internal.remove_illegal_events(kind text, biz_id text) IS 'Removes the events of a task that do not fold from the record, and returns their versions.';

CREATE FUNCTION taskledger_internal.remove_lease(name text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  delete from taskledger.lease l
   where l.name = remove_lease.name and l.name like 'worker/%'
     and (l.login = session_user
          or l.alive_until <= statement_timestamp()
             and taskledger_internal.refused_kind(taskledger_internal.lease_kinds(l.detail), true) is null);
end
$$;

COMMENT ON FUNCTION taskledger_internal.remove_lease(name text) IS 'Removes the lease of a worker if it belongs to the session''s login, or if it has ended and the login may work on all its kinds.';

CREATE FUNCTION taskledger_internal.remove_obsolete_timers(due_from timestamp with time zone, after_kind text, after_biz_id text, how_many integer) RETURNS TABLE(timers bigint, removed bigint, last_due_at timestamp with time zone, last_kind text, last_biz_id text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_bitmapscan TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_nestloop TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
begin
  return query
  with page as materialized (
    select t.ctid as address, t.due_at, t.kind, t.biz_id, t.version, t.reason
      from taskledger.timer t
     where (t.due_at, t.kind, t.biz_id) > ((select greatest(remove_obsolete_timers.due_from, clock_timestamp())),
                                           remove_obsolete_timers.after_kind, remove_obsolete_timers.after_biz_id)
       and t.due_at < taskledger_internal.end_of_time()
     order by t.due_at, t.kind, t.biz_id
     fetch first remove_obsolete_timers.how_many rows with ties
  ), obsolete as materialized (
    select p.address
      from page p
     cross join lateral (
       select e.version, e.attempt, e.type
         from taskledger.event e
        where e.kind = p.kind and e.biz_id = p.biz_id
        order by e.version desc
        limit 1) h
     where case when p.reason in ('due', 'retry') then h.version > p.version
                else h.type = 'succeeded' or p.reason = 'start_by' and h.attempt > 0
                  or p.version < taskledger_internal.args_version(p.kind, p.biz_id) end
  ), gone as (
    delete from taskledger.timer t where t.ctid = any (array(select o.address from obsolete o))
    returning 1
  )
  select (select count(*) from page), (select count(*) from gone), l.due_at, l.kind, l.biz_id
    from (values (true)) one
    left join (
      select p.due_at, p.kind, p.biz_id
        from page p
       order by p.due_at desc, p.kind desc, p.biz_id desc
       limit 1) l on true;
end
$$;

COMMENT ON FUNCTION taskledger_internal.remove_obsolete_timers(due_from timestamp with time zone, after_kind text, after_biz_id text, how_many integer) IS 'Reads the next how_many timers that are not due, after a moment, a kind and a biz_id, and removes timers without an effect because their task has moved on. Returns how many it has read and removed, and the place of the last timer.';

CREATE FUNCTION taskledger_internal.remove_parked(positions bigint[]) RETURNS SETOF bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  return query
  delete from taskledger.parked p where p.position = any (positions) and not p.discarded returning p.position;
end
$$;

COMMENT ON FUNCTION taskledger_internal.remove_parked(positions bigint[]) IS 'Removes events, except discarded events, from the list of events that cannot be published, and returns their positions.';

CREATE FUNCTION taskledger_internal.remove_permits(how_many integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
declare
  removed integer;
  removed_slots integer;
begin
  with found as materialized (
    select f.place
      from (
        select p.ctid as place, p.name, p.value, p.slot, p.n,
               max(p.n) over (partition by p.name, p.value, p.slot) as newest
          from taskledger.permit p) f
     where f.n < f.newest and (f.n > 0 or f.value = '')
     order by f.name, f.value, f.slot, f.n
     limit how_many
  ), old as materialized (
    select p.ctid as place, p.name, p.value, p.slot, p.n
      from found f
      join taskledger.permit p on p.ctid = f.place
       for update of p skip locked
  ), numbered as (
    select o.*, o.n - row_number() over (partition by o.name, o.value, o.slot order by o.n) as series from old o
  ), begun as (
    select u.*, min(u.n) over (partition by u.name, u.value, u.slot, u.series) as first from numbered u
  )
  delete from taskledger.permit p
   where p.ctid = any (array(
     select b.place
       from begun b
      where (
        select true
          from taskledger.permit q
         where q.name = b.name and q.value = b.value and q.slot = b.slot and q.n = b.first - 1
           and (q.n > 0 or q.value = '')) is null));
  get diagnostics removed = row_count;
  with unused as materialized (
    select p.name, p.value, p.slot, p.n
      from taskledger.permit p
      join taskledger.start_limit l on l.name = p.name
     where (p.slot > l.max_running or p.value <> '' and p.taken_at < clock_timestamp() - interval '10 s')
       and (p.n > 0 or p.value = '')
       and not exists (
         select from taskledger.permit q
          where q.name = p.name and q.value = p.value
            and (q.slot = p.slot and q.n <> p.n and (q.n > 0 or q.value = '') or q.slot > p.slot and q.value <> ''))
       and not exists (
         select from taskledger.permits h where h.name = p.name and h.value = p.value and h.slot = p.slot)
     limit how_many
       for share of l skip locked
       for update of p skip locked
  )
  delete from taskledger.permit p
   using unused u
   where p.name = u.name and p.value = u.value and p.slot = u.slot and p.n in (0, u.n);
  get diagnostics removed_slots = row_count;
  with future as materialized (
    select p.name, p.value, p.slot, p.n
      from taskledger.permit p
     where p.actor is not null and p.taken_at > clock_timestamp() + interval '1 s'
       for update of p skip locked
  )
  update taskledger.permit p
     set taken_at = clock_timestamp()
    from future f
   where p.name = f.name and p.value = f.value and p.slot = f.slot and p.n = f.n;
  return removed + removed_slots;
end
$$;

COMMENT ON FUNCTION taskledger_internal.remove_permits(how_many integer) IS 'Removes at most how_many old rows of slots, and as many free slots. Returns how many slots and rows it has removed.';

CREATE FUNCTION taskledger_internal.remove_subscriber_parked(reader text, kind text, biz_id text) RETURNS SETOF integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  return query
  delete from taskledger.subscriber_parked p
   where p.reader = remove_subscriber_parked.reader
     and (remove_subscriber_parked.kind is null
          or p.kind = remove_subscriber_parked.kind and p.biz_id = remove_subscriber_parked.biz_id
             and p.state <> 'discarded')
  returning p.version;
end
$$;

COMMENT ON FUNCTION taskledger_internal.remove_subscriber_parked(reader text, kind text, biz_id text) IS 'Removes the parked events of a task from the list of a subscriber, or with null its whole list, and returns their versions.';

CREATE FUNCTION taskledger_internal.remove_subscriber_state(reader text) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 DELETE FROM taskledger.subscriber_state p
   WHERE (p.reader = remove_subscriber_state.reader);
END;

COMMENT ON FUNCTION taskledger_internal.remove_subscriber_state(reader text) IS 'Removes a subscriber from the registry. Its tables stay.';

CREATE FUNCTION taskledger_internal.remove_tasks(run integer, kinds text[], biz_ids text[], versions integer[], file text, actor text, reason text, OUT tasks integer, OUT events bigint) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.remove_tasks(run integer, kinds text[], biz_ids text[], versions integer[], file text, actor text, reason text, OUT tasks integer, OUT events bigint) IS 'Removes tasks for a run of the archive: those of some keys whose last versions are as given. Records it with an actor and a reason. Returns how many tasks and events it has removed.';

CREATE FUNCTION taskledger_internal.reset_session(settings text, noted_login text DEFAULT current_setting('taskledger.login'::text, true), noted_id text DEFAULT current_setting('taskledger.login_id'::text, true), noted_run text DEFAULT current_setting('taskledger.incarnation'::text, true)) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  pairs pg_catalog.text[];
begin
  reset all;
  unlisten *;
  if pg_catalog.num_nulls(pg_catalog.set_config('taskledger.login', noted_login, false),
                          pg_catalog.set_config('taskledger.login_id', noted_id, false),
                          pg_catalog.set_config('taskledger.incarnation', noted_run, false)) is not null
     and pg_catalog.pg_advisory_unlock_all() is not null
     and (pg_catalog.pg_my_temp_schema() operator(pg_catalog.<>) 0 or settings operator(pg_catalog.<>) '{}')
  then
    if pg_catalog.pg_my_temp_schema() operator(pg_catalog.<>) 0 then
      discard temp;
    end if;
    pairs := settings;
    for i in 1 .. pg_catalog.cardinality(pairs) by 2 loop
      perform pg_catalog.set_config(pairs[i], pairs[i operator(pg_catalog.+) 1], false);
    end loop;
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.reset_session(settings text, noted_login text, noted_id text, noted_run text) IS 'Resets what code has set for the session, and restores these settings: names and values in turn.';

CREATE FUNCTION taskledger_internal.restored_until() RETURNS bigint
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return coalesce((
    select e.position
      from taskledger.event e
     where e.xid = pg_current_xact_id_if_assigned() and age(e.xmin) > 0
     order by e.position desc
     limit 1), 0);
end
$$;

COMMENT ON FUNCTION taskledger_internal.restored_until() IS 'Returns the last position of an event with the transaction''s id that an older transaction inserted; 0: none.';

CREATE FUNCTION taskledger_internal.retry_delay(policy json, failures integer, random double precision) RETURNS bigint
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.retry_delay(policy json, failures integer, random double precision) IS 'Returns the delay after the n-th failure by a retry policy, in microseconds, rounded up. random is a random number between 0 and 1.';

CREATE FUNCTION taskledger_internal.retry_limit(policy json) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE((((policy ->> 'attempts'::text))::double precision)::integer, CASE WHEN (json_typeof((policy -> 'ladder'::text)) = 'array'::text) THEN (NULLIF(json_array_length((policy -> 'ladder'::text)), 0) + 1) ELSE NULL::integer END, 25);

COMMENT ON FUNCTION taskledger_internal.retry_limit(policy json) IS 'Returns the number of failures after which a task with this retry policy is dead.';

CREATE FUNCTION taskledger_internal.retry_subscriber(subscriber text, kind text, biz_id text) RETURNS SETOF integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  perform taskledger_internal.check_recorded('subscriber.retry', retry_subscriber.subscriber);
  return query
  update taskledger.subscriber_parked p
     set state = 'retry'
   where p.reader = 'subscriber/' || retry_subscriber.subscriber and p.kind = retry_subscriber.kind
     and p.biz_id = retry_subscriber.biz_id and p.state <> 'discarded'
  returning p.version;
end
$$;

COMMENT ON FUNCTION taskledger_internal.retry_subscriber(subscriber text, kind text, biz_id text) IS 'Marks the parked events of a task to be handled again, and returns their versions.';

CREATE FUNCTION taskledger_internal.runs_archived(kind text, biz_id text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.runs_archived(kind text, biz_id text) IS 'Returns whether the task whose version 1 was inserted is an archived one, for an enqueue that is to run it again.';

CREATE FUNCTION taskledger_internal.sealed_leaf("position" bigint) RETURNS TABLE(batch bigint, place integer, leaf bigint)
    LANGUAGE plpgsql STABLE ROWS 1
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.sealed_leaf("position" bigint) IS 'Returns the batch of the event at a position, its place there from 1, and its leaf from 0; null, null and the leaf for an event of seal_rest; no row if the event is not sealed.';

CREATE FUNCTION taskledger_internal.server_run() RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return floor(extract(epoch from pg_postmaster_start_time()) * 1e6)::bigint || '/'
         || (select d.oid from pg_database d where d.datname = current_database());
end
$$;

COMMENT ON FUNCTION taskledger_internal.server_run() IS 'Returns the difference between this database and a running physical copy of it: the start of the server, and the oid of the database.';

CREATE TABLE taskledger.remote_session (
    name text NOT NULL COLLATE pg_catalog."C",
    until timestamp with time zone NOT NULL,
    holds text[] NOT NULL,
    CONSTRAINT remote_session_holds_check CHECK ((cardinality(holds) <= 10000)),
    CONSTRAINT remote_session_name_check CHECK ((octet_length(name) <= 200))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='200');

COMMENT ON TABLE taskledger.remote_session IS 'What a worker over HTTP holds by its last heartbeat, until until: the process that gave it the tasks reads it before it counts them as lost.';

CREATE FUNCTION taskledger_internal.session_holds_ms(name text, hold text) RETURNS bigint
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    BEGIN ATOMIC
 SELECT COALESCE(( SELECT (GREATEST((0)::numeric, (EXTRACT(epoch FROM (s.until - clock_timestamp())) * (1000)::numeric)))::bigint AS "greatest"
            FROM taskledger.remote_session s
           WHERE ((s.name = session_holds_ms.name) AND (session_holds_ms.hold = ANY (s.holds)))), (0)::bigint) AS "coalesce";
END;

COMMENT ON FUNCTION taskledger_internal.session_holds_ms(name text, hold text) IS 'Returns for how many milliseconds a worker over HTTP still holds an attempt by its last heartbeat, 0 if it does not.';

CREATE UNLOGGED TABLE taskledger.incarnation (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    of_table text DEFAULT ((((taskledger_internal.origin() || '/'::text) || (to_regclass('taskledger.incarnation'::text))::oid) || '/'::text) || taskledger_internal.last_crash()) NOT NULL,
    one boolean DEFAULT true NOT NULL,
    CONSTRAINT incarnation_one_check CHECK (one)
);

COMMENT ON TABLE taskledger.incarnation IS 'Internal: one row with an id that changes whenever PostgreSQL crashes, a standby is promoted or a dump is restored.';

CREATE FUNCTION taskledger_internal.session_incarnation() RETURNS text
    LANGUAGE sql
    RETURN CASE WHEN starts_with(current_setting('taskledger.incarnation'::text, true), ((((('taskledger.incarnation'::regclass)::oid)::text || '/'::text) || taskledger_internal.last_crash()) || '/'::text)) THEN current_setting('taskledger.incarnation'::text, true) ELSE NULLIF(set_config('taskledger.incarnation'::text, COALESCE((((((((('taskledger.incarnation'::regclass)::oid)::text || '/'::text) || taskledger_internal.last_crash()) || '/'::text) || taskledger_internal.incarnation()) || '/'::text) || EXTRACT(epoch FROM pg_postmaster_start_time())), ''::text), false), ''::text) END;

COMMENT ON FUNCTION taskledger_internal.session_incarnation() IS 'Returns the incarnation of the database and when its server started, as the session has noted them; null as incarnation.';

CREATE FUNCTION taskledger_internal.set_archive(kind text, keep interval, is_forever boolean, actor text, reason text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.set_archive(kind text, keep interval, is_forever boolean, actor text, reason text) IS 'Sets how long serve keeps the finished tasks of a kind; null and not is_forever: as long as those of others.';

CREATE FUNCTION taskledger_internal.set_key_life(kind text, keep interval, actor text, reason text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.set_key_life(kind text, keep interval, actor text, reason text) IS 'Sets how long the keys of a kind stay known that are archived from now on; null: forever.';

CREATE FUNCTION taskledger_internal.set_poll_place(worker text, kind text, place json) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  update taskledger.lease l
     set detail = l.detail::jsonb || jsonb_build_object(
           'places', coalesce((l.detail -> 'places')::jsonb, '{}') || jsonb_build_object(kind, place))
   where l.name = 'worker/' || worker;
end
$$;

COMMENT ON FUNCTION taskledger_internal.set_poll_place(worker text, kind text, place json) IS 'Stores the place after which a worker continues to look for waiting tasks of a kind.';

CREATE FUNCTION taskledger_internal.set_start_limit(name text, kinds text[], weights integer[], per text, max_running integer, rate integer, period_s integer, burst integer, actor text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  before taskledger.start_limit%rowtype;
  change constant bigint := nextval('taskledger.start_limits_set');
  begins_ring boolean;
  held text[];
begin
  update taskledger.start_limit_change c set n = change;
  -- Locks the limit, even if it is removed at this moment.
  insert into taskledger.start_limit as l (name, max_running, actor)
  values (set_start_limit.name, 0, set_start_limit.actor)
      on conflict (name) do update set updated_at = clock_timestamp()
  returning l.* into before;
  begins_ring := set_start_limit.rate is not null
                 and (before.burst, before.per) is distinct from (set_start_limit.burst, set_start_limit.per);
  update taskledger.start_limit l
     set per = set_start_limit.per, max_running = set_start_limit.max_running, rate = set_start_limit.rate,
         period_s = set_start_limit.period_s, burst = set_start_limit.burst,
         window_us = ceil(set_start_limit.period_s * 1000000::numeric * set_start_limit.burst / set_start_limit.rate),
         ring = case when set_start_limit.rate is null then null when begins_ring then change else before.ring end,
         actor = set_start_limit.actor, updated_at = clock_timestamp()
   where l.name = set_start_limit.name;
  delete from taskledger.limited_kind k
   where k.name = set_start_limit.name and k.kind <> all (set_start_limit.kinds);
  insert into taskledger.limited_kind as k (kind, name, weight)
  select u.kind, set_start_limit.name, u.weight
    from unnest(set_start_limit.kinds, set_start_limit.weights) u(kind, weight)
      on conflict (kind, name) do update set weight = excluded.weight;
  if set_start_limit.per is null then
    insert into taskledger.permit (name, value, slot, n)
    select set_start_limit.name, '', s.slot, 0
      from generate_series(1, set_start_limit.max_running) s(slot)
     where not exists (
       select from taskledger.permit p
        where p.name = set_start_limit.name and p.value = '' and p.slot = s.slot
          and s.slot <= before.max_running and before.per is null)
        on conflict (name, value, slot, n) do nothing;
  end if;
  if set_start_limit.max_running is not null then
    held := array(
      select k.kind || chr(31) || p.biz_id
        from taskledger.permits p
        join taskledger.limited_kind k on k.kind = p.kind and k.name = p.name
       where p.name = set_start_limit.name
         and p.value = taskledger_internal.limit_value(set_start_limit.per, p.kind, p.biz_id));
    insert into taskledger.permit (name, value, slot, n, kind, biz_id, version, attempt)
    select r.name, r.value, r.slot, i.n, case when i.n > 0 then r.kind end, case when i.n > 0 then r.biz_id end,
           case when i.n > 0 then r.version end, case when i.n > 0 then r.attempt end
      from (
        select set_start_limit.name, v.value, k.kind, t.biz_id, h.version, h.attempt,
               greatest(set_start_limit.max_running, (
                 select max(p.slot)
                   from taskledger.permit p
                  where p.name = set_start_limit.name and p.value = v.value))
                 + row_number() over (partition by v.value) as slot
          from taskledger.limited_kind k
          join taskledger_internal.lingering_tasks t on t.kind = k.kind
         cross join lateral (
           select e.version, e.attempt, e.type
             from taskledger.event e
            where e.kind = t.kind and e.biz_id = t.biz_id
            order by e.version desc
            limit 1) h
         cross join lateral taskledger_internal.limit_value(set_start_limit.per, k.kind, t.biz_id) v(value)
         where k.name = set_start_limit.name and h.type in ('started', 'progressed') and v.value is not null
           and k.kind || chr(31) || t.biz_id <> all (held)) r
     cross join (values (0), (1)) i(n);
  end if;
  if begins_ring then
    with uses as materialized (
      select t.value, t.n, row_number() over (partition by t.value order by t.n desc) as back
        from taskledger.start_token t
       where t.ring = before.ring and before.per is not distinct from set_start_limit.per
         and (t.n > 0 or before.per is null)
    ), newest as materialized (
      select u.value, u.n, u.back from uses u where u.back <= greatest(before.burst, set_start_limit.burst)
    ), free as materialized (
      select t.value, t.n, t.taken_at
        from taskledger.start_token t
       where t.ring = before.ring and (t.value, t.n) in (select w.value, w.n from newest w)
         for update skip locked
    ), known as (
      select w.value, coalesce(f.taken_at, clock_timestamp()) as taken_at
        from newest w
        left join free f on f.value = w.value and f.n = w.n
      union all
      select '', '-infinity'::timestamptz
        from generate_series(1, set_start_limit.burst) g
       where set_start_limit.per is null
    ), ordered as (
      select k.value, k.taken_at, row_number() over (partition by k.value order by k.taken_at desc) as back from known k
    ), used as (
      select o.value, o.taken_at, o.back, max(o.back) over (partition by o.value) as uses
        from ordered o
       where o.back <= set_start_limit.burst
    )
    insert into taskledger.start_token (ring, value, n, taken_at)
    select change, u.value,
           case when set_start_limit.per is null then 1 - u.back else u.uses + 1 - u.back end - i.behind,
           case when i.behind = 0 then u.taken_at else '-infinity' end
      from used u
     cross join (values (0), (set_start_limit.burst)) i(behind)
     where i.behind = 0 or set_start_limit.per is not null;
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.set_start_limit(name text, kinds text[], weights integer[], per text, max_running integer, rate integer, period_s integer, burst integer, actor text) IS 'Sets or replaces a limit of starts.';

CREATE FUNCTION taskledger_internal.short_in_a_row(data json) RETURNS integer
    LANGUAGE sql IMMUTABLE
    RETURN COALESCE(("substring"((data)::text, '"short_in_a_row":([0-9]{1,9})'::text))::integer, 0);

COMMENT ON FUNCTION taskledger_internal.short_in_a_row(data json) IS 'Returns the number in a row of a snooze of less than a second; 0: it was longer.';

CREATE FUNCTION taskledger_internal.split_args(entries json, OUT others json, OUT args text[]) RETURNS record
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.split_args(entries json, OUT others json, OUT args text[]) IS 'Returns the entries of taskledger.enqueue_many without args, and the args of each.';

CREATE FUNCTION taskledger_internal.still_ends(kind text, biz_id text, version integer, needs_args boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.still_ends(kind text, biz_id text, version integer, needs_args boolean) IS 'Locks the last event of a finished task against its removal until the transaction ends. Returns whether the event is in the ledger: it is not if the task was removed. With needs_args also whether the args are not erased.';

CREATE FUNCTION taskledger_internal.still_has(kind text, biz_id text, "position" bigint, last integer) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
begin
  return exists (
    select from taskledger.event e
     where e.position = still_has.position and e.kind = still_has.kind and e.biz_id = still_has.biz_id)
    and not exists (
      select from taskledger.event n
       where n.kind = still_has.kind and n.biz_id = still_has.biz_id and n.version > still_has.last);
end
$$;

COMMENT ON FUNCTION taskledger_internal.still_has(kind text, biz_id text, "position" bigint, last integer) IS 'Returns whether the event of a task at a position is in the ledger, and none after a version: a removed task has none.';

CREATE FUNCTION taskledger_internal.stopped_lines(most integer) RETURNS TABLE(order_key text, kind text, biz_id text, since timestamp with time zone, is_more boolean)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
declare
  examined constant integer := 10000;
begin
  return query
  with burial as materialized (
    select e.order_key, e.kind, e.biz_id, e.version, e.recorded_at, e.position
      from taskledger.event e
     where e.order_key is not null and e.type = 'buried'
     order by e.position desc
     limit examined + 1
  ), dead as materialized (
    select t.kind, t.biz_id
      from taskledger.tasks t
     where t.fingerprint is not null and (select count(*) from burial) > examined
     limit examined + 1
  ), candidate as materialized (
    select b.order_key, b.kind, b.biz_id, b.recorded_at, b.position
      from burial b
     where not exists (
       select from taskledger.event n
        where n.kind = b.kind and n.biz_id = b.biz_id and n.version = b.version + 1)
     union
    select h.order_key, d.kind, d.biz_id, h.recorded_at, h.position
      from dead d
     cross join lateral (
       select e.order_key, e.recorded_at, e.position, e.type
         from taskledger.event e
        where e.kind = d.kind and e.biz_id = d.biz_id
        order by e.version desc
        limit 1) h
     where h.type = 'buried' and h.order_key is not null
  )
  select c.order_key, c.kind, c.biz_id, c.recorded_at, (select count(*) > examined from dead)
    from (select * from candidate order by position desc) c
   cross join lateral (
     select t.kind, t.biz_id
       from taskledger_internal.line_turns(array[c.order_key]) t
      where t.is_held
      limit 1) h
   where h.kind = c.kind and h.biz_id = c.biz_id
   limit stopped_lines.most;
end
$$;

COMMENT ON FUNCTION taskledger_internal.stopped_lines(most integer) IS 'Returns lines that stand because the task whose turn it is is dead, with that task and since when it is dead. is_more: there may be others, because too many tasks are dead to examine all.';

CREATE FUNCTION taskledger_internal.string_value(string text) RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    AS $_$
  select coalesce(string_agg(case
           when left(e.m[1], 1) <> E'\\' then e.m[1]
           when e.m[1] ~ E'^\\\\u(0000|[dD][89a-fA-F]..)$' then lower(e.m[1])  -- its only form
           else replace(('"' || e.m[1] || '"')::json #>> '{}', E'\\', E'\\\\')
         end, '' order by e.n), '')
    from regexp_matches(string, E'\\\\u[dD][89abAB]..\\\\u[dD][c-fC-F]..|\\\\u....|\\\\.|[^\\\\]+', 'g')
         with ordinality e(m, n)
$_$;

COMMENT ON FUNCTION taskledger_internal.string_value(string text) IS 'Returns the characters of a JSON string. The escapes of backslashes, of \u0000 and of halves of surrogate pairs remain.';

CREATE FUNCTION taskledger_internal.subscriber_login(reader text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  return (select c.login from taskledger.cursor c where c.reader = subscriber_login.reader order by c.n desc limit 1);
end
$$;

COMMENT ON FUNCTION taskledger_internal.subscriber_login(reader text) IS 'Returns the login that a reader of the feed belongs to; null: none.';

CREATE FUNCTION taskledger_internal.subscriber_reader(subscriber text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
  if subscriber is null or subscriber !~ '^[A-Za-z0-9_-]{1,64}$' then
    raise exception 'taskledger: invalid subscriber %: must be 1 to 64 of A-Z, a-z, 0-9, _ and -',
      coalesce(quote_literal(left(subscriber, 100)), 'null')
      using errcode = 'invalid_parameter_value';
  end if;
  return 'subscriber/' || subscriber;
end
$_$;

COMMENT ON FUNCTION taskledger_internal.subscriber_reader(subscriber text) IS 'Returns the reader of a subscriber in the table cursor, and raises an error for an invalid name.';

CREATE FUNCTION taskledger_internal.sweep_leases() RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
declare
  max_ended constant integer := 1000;
begin
  delete from taskledger.lease l
   where l.name in (
     select d.name from taskledger.lease d
      where (d.name like 'worker/%' or d.name like 'broker/%')
        and d.alive_until < clock_timestamp() - interval '1 day'
         or d.name in (
           select e.name from taskledger.lease e
            where e.name like 'worker/%' and e.alive_until < clock_timestamp()
            order by e.alive_until desc, e.name
           offset max_ended)
        for update skip locked);
end
$$;

COMMENT ON FUNCTION taskledger_internal.sweep_leases() IS 'Removes the leases that ended a day ago, and the ended leases of workers except the newest 1000.';

CREATE FUNCTION taskledger_internal.tags_of(meta json) RETURNS SETOF text
    LANGUAGE plpgsql IMMUTABLE ROWS 2
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if strpos(meta::text, '"tags"') = 0 and strpos(meta::text, '\u') = 0 then
    return;
  end if;
  return query select distinct t from json_array_elements_text(meta -> 'tags') t where t <> '';
exception when data_exception then
  return;
end
$$;

COMMENT ON FUNCTION taskledger_internal.tags_of(meta json) IS 'Returns the tags in the meta of a first event, each once.';

CREATE FUNCTION taskledger_internal.take_over(kind text, biz_id text, version integer, worker text) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.take_over(kind text, biz_id text, version integer, worker text) IS 'Returns whether a task whose worker is lost may run again; buries it if not.';

CREATE FUNCTION taskledger_internal.take_permit(name text, value text, is_per boolean, most integer, has_above boolean, kind text, biz_id text, version integer, attempt integer, actor text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_variable
declare
  hint constant text[] := string_to_array(current_setting('taskledger.slots', true), chr(31));
  is_hinted constant boolean := coalesce(hint[1] = name and hint[2] = value, false);
  is_repeatable constant boolean := current_setting('transaction_isolation') <> 'read committed';
  found_slots integer[] := case when is_hinted then hint[4]::integer[] else '{}' end;
  hand integer := case when is_hinted then hint[3]::integer else (random() * 10000)::integer end;
  latest integer;
  slots integer := most;
  looked integer := 0;
  above integer;
  allowed integer[];
  free record;
  candidate integer;
  is_made boolean;
  place_slot integer;
  place_n bigint;
begin
  loop
    allowed := null;
    if coalesce(has_above, exists (
      select from taskledger.permit p where p.name = name and p.value = value and p.slot > most)) then
      begin
        with slot as materialized (
          select p.slot, p.n, p.kind, p.biz_id, p.version, p.attempt, p.taken_at
            from taskledger_internal.newest_permits(name, value) p
        ), lockable as materialized (
          select f.slot, f.n
            from slot s
            join taskledger.permit f on f.name = name and f.value = value and f.slot = s.slot and f.n = s.n
           where not exists (
             select
               from (
                 select e.type, e.version, e.attempt
                   from taskledger.event e
                  where e.kind = s.kind and e.biz_id = s.biz_id
                  order by e.version desc
                  limit 1) h
              where h.type in ('started', 'progressed') and (h.version = s.version or h.attempt = s.attempt)
                 or h.version = s.version - 1
                    and s.taken_at > clock_timestamp() - taskledger_internal.permit_lasts())
             for share of f skip locked
        )
        select array_agg(l.slot) as slots, array_agg(l.n) as ns,
               (select count(*) from slot s where s.slot > most) as above
          into free
          from lockable l;
        -- Another start may have taken a slot before it was locked here.
        with free as materialized (
          select f.slot
            from unnest(free.slots, free.ns) f(slot, n)
           where not exists (
             select from taskledger.permit q where q.name = name and q.value = value and q.slot = f.slot and q.n > f.n)
        )
        select free.above - (select count(*) from free f where f.slot > most),
               array(select f.slot from free f where f.slot <= most order by f.slot desc)
          into above, allowed;
        allowed := allowed[above + 1:];
        raise sqlstate 'TL007'; -- unlocks the slots
      exception when sqlstate 'TL007' then
        null;
      end;
      found_slots := allowed;
      slots := 0;
    elsif is_per then
      slots := coalesce((
        select p.slot
          from taskledger.permit p
         where p.name = name and p.value = value
         order by p.slot desc
         limit 1), 0);
    end if;
    has_above := null;
    place_slot := null;
    is_made := null;
    loop
      if found_slots <> '{}' then
        candidate := found_slots[1];
        found_slots := found_slots[2:];
        select f.slot, f.n into place_slot, place_n
          from (
            select q.n
              from taskledger.permit q
             where q.name = name and q.value = value and q.slot = candidate
             order by q.n desc
             limit 1) newest
         cross join lateral (
           select f.slot, f.n
             from taskledger.permit f
            where f.name = name and f.value = value and f.slot = candidate and f.n = newest.n and candidate <= most
              and not exists (
                select
                  from (
                    select e.type, e.version, e.attempt
                      from taskledger.event e
                     where e.kind = f.kind and e.biz_id = f.biz_id
                     order by e.version desc
                     limit 1) h
                 where h.type in ('started', 'progressed')
                       and (h.version = f.version
                            or h.attempt = f.attempt
                               and taskledger_internal.args_version(f.kind, f.biz_id) <= f.version)
                    or h.version = f.version - 1
                       and f.taken_at > clock_timestamp() - taskledger_internal.permit_lasts())
              for update skip locked) f;
        exit when found;
      elsif looked < slots then
        found_slots := array(
          select s.slot
            from (
              select (hand + g) % slots + 1 as slot from generate_series(0, least(16, slots - looked) - 1) g) s
           cross join lateral (
             select q.kind, q.biz_id, q.version, q.attempt, q.taken_at
               from taskledger.permit q
              where q.name = name and q.value = value and q.slot = s.slot
              order by q.n desc
              limit 1) f
           where not exists (
             select
               from (
                 select e.type, e.version, e.attempt
                   from taskledger.event e
                  where e.kind = f.kind and e.biz_id = f.biz_id
                  order by e.version desc
                  limit 1) h
              where h.type in ('started', 'progressed')
                    and (h.version = f.version
                         or h.attempt = f.attempt
                            and taskledger_internal.args_version(f.kind, f.biz_id) <= f.version)
                 or h.version = f.version - 1
                    and f.taken_at > clock_timestamp() - taskledger_internal.permit_lasts()));
        hand := (hand + least(16, slots - looked)) % slots;
        looked := looked + 16;
      else
        exit;
      end if;
    end loop;
    if place_slot is null and allowed is null and is_per then
      for candidate in
        select s.slot
          from generate_series(1, most) s(slot)
         where not exists (select from taskledger.permit p where p.name = name and p.value = value and p.slot = s.slot)
         order by s.slot
         limit 256
      loop
        is_made := taskledger_internal.make_slot(name, value, candidate);
        exit when is_made is not null;
      end loop;
      if is_made then
        place_slot := candidate;
        place_n := 0;
      elsif not is_made then
        looked := 0;
        continue; -- another start has made it
      end if;
    end if;
    if place_slot is null then
      raise exception 'taskledger: no task of kind % can start: limit % allows at most % to run at a time', kind,
          name || case when value = '' then '' else ' of ' || value end, most
        using errcode = 'TL008',
              hint = 'try again when one has ended, or raise the limit: taskledger limit ' || name
                     || ' --concurrency N';
    end if;
    if is_repeatable then
      perform taskledger_internal.check_limits_are_current();
    end if;
    if value = '' then
      begin
        update taskledger.permit p
           set n = p.n + 1, taken_at = default, kind = kind, biz_id = biz_id, version = version, attempt = attempt,
               actor = actor
         where p.name = name and p.value = value and p.slot = place_slot and p.n = place_n
           and coalesce((select l.max_running from taskledger.start_limit l where l.name = name), most) = most;
      exception when unique_violation then
        perform taskledger_internal.refuse_second_start(kind, biz_id);
      end;
    else
      insert into taskledger.permit (name, value, slot, n, kind, biz_id, version, attempt)
      select name, value, place_slot, place_n + 1, kind, biz_id, version, attempt
       where coalesce((select l.max_running from taskledger.start_limit l where l.name = name), most) = most
          on conflict on constraint permit_pkey do nothing;
    end if;
    if found then
      perform set_config('taskledger.slots', name || chr(31) || value || chr(31) || hand || chr(31)
                                             || found_slots::text, false);
      return;
    end if;
    select l.max_running into latest from taskledger.start_limit l where l.name = name;
    if latest <> most then
      most := latest;
      slots := most;
      looked := 0;
    end if;
  end loop; -- another start has taken the slot since the snapshot of the search
end
$$;

COMMENT ON FUNCTION taskledger_internal.take_permit(name text, value text, is_per boolean, most integer, has_above boolean, kind text, biz_id text, version integer, attempt integer, actor text) IS 'Takes a permit of a limit for a start. Raises TL008 if none is free.';

CREATE FUNCTION taskledger_internal.take_permits() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
declare
  hint constant text := current_setting('taskledger.first_start', true);
begin
  if pg_sequence_last_value('taskledger.start_limits_set'::regclass) is null then
    return null;
  end if;
  if hint <> '' and hint::bigint < new.position and exists (
    select
      from taskledger.event f
      join taskledger.event e on e.xid = new.xid and e.position = new.position and e.xmin = f.xmin and e.cmin = f.cmin
     where f.xid = new.xid and f.position = hint::bigint and f.type in ('started', 'progressed')) then
    return null;
  end if;
  perform taskledger_internal.take_permits_of_statement(new.xid, new.position);
  perform set_config('taskledger.first_start', new.position::text, false);
  return null;
end
$$;

COMMENT ON FUNCTION taskledger_internal.take_permits() IS 'The trigger that takes permits and tokens for each start of a kind with limits. Raises TL008 if one is not free.';

CREATE FUNCTION taskledger_internal.take_permits_at_once(name text, value text, is_per boolean, most integer, kinds text[], biz_ids text[], versions integer[], attempts integer[], actor text, starts integer[]) RETURNS integer[]
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_variable
declare
  hint constant text[] := string_to_array(current_setting('taskledger.slots', true), chr(31));
  rest integer[] := starts;
  is_hinted constant boolean := coalesce(hint[1] = name and hint[2] = value, false);
  hand integer := case when is_hinted then hint[3]::integer else (random() * 10000)::integer end;
  low bigint := coalesce(case when is_hinted then hint[5]::bigint end, 0);
  own integer[] := coalesce(case when is_hinted then hint[6]::integer[] end, '{}');
  is_own boolean := own <> '{}';
  slots integer := most;
  looked integer := 0;
  chunk integer;
  candidates integer[];
  added integer[];
  free record;
begin
  if is_per then
    slots := least(most, (
      select p.slot from taskledger.permit p where p.name = name and p.value = value order by p.slot desc limit 1));
  end if;
  while rest <> '{}' and looked < slots loop
    if is_own then
      candidates := own[:2 * cardinality(rest)];
    else
      chunk := least(greatest(16, 2 * cardinality(rest)), slots - looked);
      candidates := array(select (hand + g) % slots + 1 from generate_series(0, chunk - 1) g);
    end if;
    select coalesce(array_agg(l.slot), '{}') as slots, array_agg(l.n) as ns, array_agg(l.ctid) as rows,
           max(l.place) as place,
           (2 * avg(l.n) - max(l.n))::bigint - 16 as low
      into free
      from (
        select f.slot, f.n, f.ctid, s.place
          from unnest(candidates) with ordinality s(slot, place)
         cross join lateral (
          (select q.ctid, q.n, q.kind, q.biz_id, q.version, q.attempt, q.taken_at
             from taskledger.permit q
            where q.name = name and q.value = value and q.slot = s.slot and q.n >= low
            order by q.n desc
            limit 1)
            union all
          (select q.ctid, q.n, q.kind, q.biz_id, q.version, q.attempt, q.taken_at
             from taskledger.permit q
            where q.name = name and q.value = value and q.slot = s.slot and q.n < low
            order by q.n desc
            limit 1)
            limit 1) newest
         cross join lateral (
           select f.slot, f.n, f.ctid
             from taskledger.permit f
            where f.ctid = newest.ctid and f.n = newest.n -- else another start has taken it
              and f.slot <= most
              and not exists (
                select
                  from (
                    select e.type, e.version, e.attempt
                      from taskledger.event e
                     where e.kind = newest.kind and e.biz_id = newest.biz_id
                     order by e.version desc
                     limit 1) h
                 where h.type in ('started', 'progressed')
                       and (h.version = newest.version
                            or h.attempt = newest.attempt
                               and taskledger_internal.args_version(newest.kind, newest.biz_id) <= newest.version)
                    or h.version = newest.version - 1
                       and newest.taken_at > clock_timestamp() - taskledger_internal.permit_lasts())
              for update skip locked) f
         limit cardinality(rest)) l;
    -- The snapshot of this statement is newer than the locks: see take_permit.
    if value = '' then
      begin
        with added as (
          update taskledger.permit p
             set n = p.n + 1, taken_at = default, kind = kinds[rest[l.i]], biz_id = biz_ids[rest[l.i]],
                 version = versions[rest[l.i]], attempt = attempts[rest[l.i]], actor = actor
            from unnest(free.rows) with ordinality l(place, i)
           where p.ctid = l.place and most = (select l.max_running from taskledger.start_limit l where l.name = name)
          returning p.slot
        )
        select coalesce(array_agg(a.slot), '{}') into added from added a;
      exception when unique_violation then
        return rest;
      end;
    else
      with added as (
        insert into taskledger.permit (name, value, slot, n, kind, biz_id, version, attempt)
        select name, value, l.slot, l.n + 1, kinds[rest[l.i]], biz_ids[rest[l.i]], versions[rest[l.i]],
               attempts[rest[l.i]]
          from unnest(free.slots, free.ns) with ordinality l(slot, n, i)
         where most = (select l.max_running from taskledger.start_limit l where l.name = name)
            on conflict on constraint permit_pkey do nothing
        returning slot
      )
      select coalesce(array_agg(a.slot), '{}') into added from added a;
    end if;
    if cardinality(added) < cardinality(free.slots) then -- other starts were faster, or the limit was changed
      return array(
        select r.start
          from unnest(rest) with ordinality r(start, i)
         where (free.slots[r.i] = any (added)) is not true);
    end if;
    rest := rest[cardinality(added) + 1:];
    low := coalesce(free.low, low);
    if is_own then
      own := own[cardinality(candidates) + 1:] || candidates;
    else
      chunk := case when rest = '{}' then free.place else chunk end;
      hand := (hand + chunk) % slots;
      looked := looked + chunk;
    end if;
    own := array(
      select o.slot from unnest(own) with ordinality o(slot, i) where o.slot <> all (added) order by o.i) || added;
    is_own := false;
  end loop;
  own := own[greatest(1, cardinality(own) - least(most, 1000) + 1):];
  perform set_config('taskledger.slots', name || chr(31) || value || chr(31) || hand || chr(31) || '{}'
                                         || chr(31) || low || chr(31) || own::text, false);
  return rest;
end
$$;

COMMENT ON FUNCTION taskledger_internal.take_permits_at_once(name text, value text, is_per boolean, most integer, kinds text[], biz_ids text[], versions integer[], attempts integer[], actor text, starts integer[]) IS 'Takes permits of a limit for some starts of the lists, by their numbers from 1. Returns the numbers of those for which it has not found a free slot.';

CREATE FUNCTION taskledger_internal.take_permits_of_statement(xid xid8, first bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_variable
declare
  is_repeatable constant boolean := current_setting('transaction_isolation') <> 'read committed';
  l record;
  has_above boolean;
  start integer;
  rest integer[];
begin
  if is_repeatable then
    perform taskledger_internal.check_limits_are_current();
  end if;
  for l in
    select s.name, s.value, s.per is not null as is_per, s.max_running, s.rate,
           array_agg(s.kind order by s.position) filter (where not s.is_next) as kinds,
           array_agg(s.biz_id order by s.position) filter (where not s.is_next) as biz_ids,
           array_agg(s.version order by s.position) filter (where not s.is_next) as versions,
           array_agg(s.attempt order by s.position) filter (where not s.is_next) as attempts,
           array_agg(s.actor order by s.position) filter (where not s.is_next) as actors,
           array_agg(s.position order by s.position) filter (where s.is_next) as next_positions,
           array_agg(s.kind order by s.position) as all_kinds,
           array_agg(s.weight order by s.position) as weights,
           array_agg(s.recorded_at order by s.position) as at
      from (
        select m.name, m.per, m.max_running, m.rate, k.weight, e.position, e.kind, e.biz_id, e.version, e.attempt,
               e.actor, e.recorded_at, coalesce(b.type in ('started', 'progressed'), false) as is_next,
               case when m.per is null then ''
                    else taskledger_internal.limit_value(m.per, e.kind, e.biz_id) end as value
          from taskledger.event f
          join taskledger.event e on e.xid = xid and e.position >= first and e.xmin = f.xmin and e.cmin = f.cmin
          join taskledger.limited_kind k on k.kind = e.kind
          join taskledger.start_limit m on m.name = k.name
          left join taskledger.event b on b.kind = e.kind and b.biz_id = e.biz_id and b.version = e.version - 1
         where f.xid = xid and f.position = first and e.type in ('started', 'progressed')
           and (e.type = 'started' or b.type is null or b.type not in ('started', 'progressed'))) s
     where s.value is not null
     group by s.name, s.value, s.per, s.max_running, s.rate
     order by s.name, s.value
  loop
    if l.max_running is not null then
      has_above := exists (
        select from taskledger.permit p where p.name = l.name and p.value = l.value and p.slot > l.max_running);
      rest := array(select generate_series(1, cardinality(l.biz_ids)));
      if not l.is_per then
        foreach start in array array(
          select s.i
            from unnest(l.kinds, l.biz_ids, l.versions) with ordinality s(kind, biz_id, version, i)
            join taskledger.permit p
              on p.name = l.name and p.value = '' and p.kind = s.kind and p.biz_id = s.biz_id and p.version = s.version)
        loop
          if taskledger_internal.keep_own_permit(l.name, l.kinds[start], l.biz_ids[start], l.versions[start],
                                                 l.attempts[start], l.actors[start]) then
            rest := array_remove(rest, start);
          end if;
        end loop;
      end if;
      if not has_above and not is_repeatable and rest <> '{}' then
        rest := taskledger_internal.take_permits_at_once(l.name, l.value, l.is_per, l.max_running, l.kinds, l.biz_ids,
                                                         l.versions, l.attempts, null, rest);
      end if;
      foreach start in array rest loop
        perform taskledger_internal.take_permit(l.name, l.value, l.is_per, l.max_running, has_above, l.kinds[start],
                                                l.biz_ids[start], l.versions[start], l.attempts[start], null);
      end loop;
      if l.next_positions is not null then
        perform case when not taskledger_internal.keep_permit(l.name, l.value, e.kind, e.biz_id, b.attempt, e.version,
                                                              e.attempt) then
                  taskledger_internal.take_permit(l.name, l.value, l.is_per, l.max_running, null, e.kind, e.biz_id,
                                                  e.version, e.attempt, null) end
           from unnest(l.next_positions) n(position)
           join taskledger.event e on e.xid = xid and e.position = n.position
           join taskledger.event b on b.kind = e.kind and b.biz_id = e.biz_id and b.version = e.version - 1;
      end if;
    end if;
    if l.rate is not null and (
        is_repeatable or cardinality(l.at) = 1
        or not taskledger_internal.take_tokens_at_once(l.name, l.value, l.weights, l.at)) then
      for i in 1 .. cardinality(l.at) loop
        perform taskledger_internal.take_tokens(l.name, l.value, l.is_per, l.weights[i], l.all_kinds[i], l.at[i]);
      end loop;
    end if;
  end loop;
end
$$;

COMMENT ON FUNCTION taskledger_internal.take_permits_of_statement(xid xid8, first bigint) IS 'Takes permits and tokens for the starts that a statement has inserted: those from a position on, the first of them. Raises TL008 if there are not as many.';

CREATE FUNCTION taskledger_internal.take_tokens(name text, value text, is_per boolean, weight integer, kind text, at timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_variable
declare
  has_use boolean;
  is_made boolean;
  l record;
  now record;
  newest bigint;
  use bigint;
  taken integer := 0;
begin
  select s.ring, s.burst, s.window_us, s.rate into l from taskledger.start_limit s where s.name = name;
  while taken < weight loop
    newest := coalesce((
      select t.n
        from taskledger.start_token t
       where t.ring = l.ring and t.value = value
       order by t.n desc
       limit 1), 0);
    select t.n into use
      from (
        select o.n
          from taskledger.start_token o
         where o.ring = l.ring and o.value = value and o.n > newest - l.burst
           and o.taken_at <= at - l.window_us * interval '1 microsecond'
         order by o.n
         limit 256) oldest
     cross join lateral (
       select u.n
         from taskledger.start_token u
        where u.ring = l.ring and u.value = value and u.n = oldest.n
          for update skip locked) t
     limit 1;
    has_use := found;
    if not has_use and is_per then
      is_made := null;
      for use in
        select g.n
          from generate_series(1 - l.burst, 0) g(n)
         where not exists (
           select from taskledger.start_token t where t.ring = l.ring and t.value = value and t.n = g.n)
         order by g.n
         limit 256
      loop
        is_made := taskledger_internal.make_token(l.ring, value, use);
        exit when is_made is not null;
      end loop;
      has_use := coalesce(is_made, false);
      continue when not is_made; -- another start has made it
    end if;
    if not has_use then
      raise exception 'taskledger: no task of kind % can start now: limit % allows % starts in % s', kind,
          name || case when value = '' then '' else ' of ' || value end, l.burst,
          trim_scale(round(l.window_us / 1000000::numeric, 6))
        using errcode = 'TL008',
              hint = 'try again later, or raise the limit: taskledger limit ' || name || ' --rate N/s';
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
      perform taskledger_internal.check_limits_are_current();
    end if;
    select s.ring, s.burst, s.window_us, s.rate into now from taskledger.start_limit s where s.name = name;
    if now.ring is null then
      return;
    end if;
    if now.ring <> l.ring or now.window_us > l.window_us then
      l := now;
      taken := 0;
      continue;
    end if;
    insert into taskledger.start_token (ring, value, n, taken_at) values (l.ring, value, use + l.burst, at)
        on conflict on constraint start_token_pkey do nothing;
    if found then
      taken := taken + 1;
    end if;
  end loop;
end
$$;

COMMENT ON FUNCTION taskledger_internal.take_tokens(name text, value text, is_per boolean, weight integer, kind text, at timestamp with time zone) IS 'Takes tokens of a rate for a start at a moment, the time of its event. Raises TL008 if there are not as many.';

CREATE FUNCTION taskledger_internal.take_tokens_at_once(name text, value text, weights integer[], at timestamp with time zone[]) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    SET jit TO 'off'
    AS $$
#variable_conflict use_variable
declare
  wanted constant bigint := (select sum(w) from unnest(weights) w);
  first constant timestamptz := (select min(t) from unnest(at) t);
  newest bigint;
  uses bigint[];
  l record;
  now record;
begin
  select s.ring, s.burst, s.window_us into l from taskledger.start_limit s where s.name = name;
  newest := coalesce((
    select t.n from taskledger.start_token t where t.ring = l.ring and t.value = value order by t.n desc limit 1), 0);
  uses := array(
    select t.n
      from (
        select o.n
          from taskledger.start_token o
         where o.ring = l.ring and o.value = value and o.n > newest - l.burst
           and o.taken_at <= first - l.window_us * interval '1 microsecond'
         order by o.n
         limit wanted + 256) oldest
     cross join lateral (
       select u.n
         from taskledger.start_token u
        where u.ring = l.ring and u.value = value and u.n = oldest.n
          for update skip locked) t
     limit wanted);
  select s.ring, s.window_us into now from taskledger.start_limit s where s.name = name;
  if cardinality(uses) < wanted or now.ring is distinct from l.ring or now.window_us > l.window_us
      or exists (
        select
          from unnest(uses) u(n)
          join taskledger.start_token t on t.ring = l.ring and t.value = value and t.n = u.n + l.burst) then
    return false;
  end if;
  insert into taskledger.start_token (ring, value, n, taken_at)
  select l.ring, value, uses[row_number() over (order by s.i)] + l.burst, s.taken_at
    from unnest(at, weights) with ordinality s(taken_at, weight, i)
   cross join generate_series(1, s.weight);
  return true;
end
$$;

COMMENT ON FUNCTION taskledger_internal.take_tokens_at_once(name text, value text, weights integer[], at timestamp with time zone[]) IS 'Takes tokens of a rate for all starts of the lists, or for none. Reports whether it has taken them.';

CREATE FUNCTION taskledger_internal.thin_cursor(reader text, above bigint) RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  newest bigint := (select c.n from taskledger.cursor c where c.reader = thin_cursor.reader order by c.n desc limit 1);
begin
  if newest is null or not (starts_with(reader, 'subscriber/') or reader = 'seal') then
    return above;
  end if;
  delete from taskledger.cursor c
   where c.reader = thin_cursor.reader and c.n > thin_cursor.above and c.n < newest - 100;
  return greatest(above, newest - 101);
end
$$;

COMMENT ON FUNCTION taskledger_internal.thin_cursor(reader text, above bigint) IS 'Removes rows of the cursor of a subscriber or of the seal that it no longer needs, and returns the n to continue above.';

CREATE FUNCTION taskledger_internal.thin_moments(since timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  next_since timestamptz;
begin
  with old as materialized (
    select m.at, date_trunc('minute', m.at) as minute,
           date_trunc('minute', lag(m.at) over (order by m.at)) as minute_before,
           date_trunc('minute', lead(m.at) over (order by m.at)) as minute_after
      from taskledger.moment m
     where m.at >= since and m.at < date_trunc('minute', clock_timestamp() - interval '1 hour')
  ), gone as (
    delete from taskledger.moment m
     using old o
     where m.at = o.at and o.minute = o.minute_before and o.minute = o.minute_after
  )
  select max(o.minute) into next_since from old o;
  return coalesce(next_since, since);
end
$$;

COMMENT ON FUNCTION taskledger_internal.thin_moments(since timestamp with time zone) IS 'Removes moments since a time that are older than an hour, and returns the time to continue at.';

CREATE FUNCTION taskledger_internal.tidy_tokens(how_many integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
declare
  r record;
  removed integer;
  total integer := 0;
begin
  with future as materialized (
    select t.ring, t.value, t.n, g.burst
      from (select * from taskledger_internal.start_rings offset 0) g
      join taskledger.start_token t on t.ring = g.ring and t.value = g.value and t.n > g.newest - g.burst
     where t.taken_at > clock_timestamp() + interval '1 s'
       for update of t skip locked
  )
  insert into taskledger.start_token (ring, value, n)
  select f.ring, f.value, f.n + f.burst from future f
      on conflict (ring, value, n) do nothing;
  with left_behind as materialized (
    select t.ring, t.value, t.n, t.taken_at, g.burst, g.newest
      from (select * from taskledger_internal.start_rings offset 0) g
      join taskledger.start_token t on t.ring = g.ring and t.value = g.value and t.n <= g.newest - g.burst
     where (t.n > 0 or t.value = '')
       and not exists (
         select from taskledger.start_token s where s.ring = t.ring and s.value = t.value and s.n = t.n + g.burst)
       for update of t skip locked
  )
  insert into taskledger.start_token (ring, value, n, taken_at)
  select b.ring, b.value, s.n, b.taken_at
    from left_behind b
   cross join generate_series(b.n + b.burst, b.newest, b.burst) s(n)
      on conflict (ring, value, n) do nothing;
  with old as materialized (
    select t.ctid as place, t.ring, t.value, t.n, g.burst, (t.n % g.burst + g.burst) % g.burst as token
      from (select * from taskledger_internal.start_rings offset 0) g
      join taskledger.start_token t on t.ring = g.ring and t.value = g.value and t.n <= g.newest - g.burst
     where (t.n > 0 or t.value = '')
       and (
         select true
           from taskledger.start_token s
          where s.ring = t.ring and s.value = t.value and s.n = t.n + g.burst)
     order by t.ring, t.value, t.n
     limit how_many
       for update of t skip locked
  ), numbered as (
    select o.*, (o.n - o.token) / o.burst
                - row_number() over (partition by o.ring, o.value, o.token order by o.n) as series
      from old o
  ), begun as (
    select u.*, min(u.n) over (partition by u.ring, u.value, u.token, u.series) as first from numbered u
  )
  delete from taskledger.start_token t
   where t.ctid = any (array(
     select b.place
       from begun b
      where (
        select true
          from taskledger.start_token q
         where q.ring = b.ring and q.value = b.value and q.n = b.first - b.burst
           and (q.n > 0 or q.value = '')) is null));
  get diagnostics total = row_count;
  for r in
    select g.ring, g.value
      from taskledger_internal.start_rings g
     where g.value <> '' and not exists (
       select from taskledger.start_token t
        where t.ring = g.ring and t.value = g.value
          and t.taken_at > clock_timestamp() - g."window" - interval '10 s')
     limit how_many
  loop
    with uses as materialized (
      select t.n from taskledger.start_token t where t.ring = r.ring and t.value = r.value for update skip locked
    )
    delete from taskledger.start_token t
     where t.ring = r.ring and t.value = r.value
       and (select count(*) from uses) = (
         select count(*) from taskledger.start_token a where a.ring = r.ring and a.value = r.value);
    get diagnostics removed = row_count;
    total := total + removed;
  end loop;
  with former as materialized (
    select t.ring, t.value, t.n
      from taskledger.start_token t
     where t.ring not in (select l.ring from taskledger.start_limit l where l.ring is not null)
     limit how_many
       for update skip locked
  )
  delete from taskledger.start_token t using former f where t.ring = f.ring and t.value = f.value and t.n = f.n;
  get diagnostics removed = row_count;
  return total + removed;
end
$$;

COMMENT ON FUNCTION taskledger_internal.tidy_tokens(how_many integer) IS 'Removes old uses of tokens, at most how_many of each sort, and makes tokens usable whose last use is in the future or is not known to starts. Returns how many rows it has removed.';

CREATE FUNCTION taskledger_internal.timeline() RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
  if pg_is_in_recovery() then
    return null;
  end if;
  return ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint;
end
$$;

COMMENT ON FUNCTION taskledger_internal.timeline() IS 'Returns the timeline of the database, which changes when a standby is promoted or an archive is restored; null on a standby.';

CREATE FUNCTION taskledger_internal.times_of(entry json, OUT run_at timestamp with time zone, OUT run_in interval, OUT start_by timestamp with time zone, OUT finish_by timestamp with time zone) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
  name text;
begin
  name := 'run_at';    run_at := (entry->>name)::timestamptz;
  name := 'run_in';    run_in := (entry->>name)::interval;
  name := 'start_by';  start_by := (entry->>name)::timestamptz;
  name := 'finish_by'; finish_by := (entry->>name)::timestamptz;
  perform taskledger_internal.check_times(run_at, run_in, start_by, finish_by);
exception
  when datetime_field_overflow or invalid_datetime_format or interval_field_overflow
    or invalid_time_zone_displacement_value then
    raise exception 'taskledger: invalid % %', name, quote_literal(left(entry->>name, 80))
      using errcode = 'invalid_parameter_value';
end
$$;

COMMENT ON FUNCTION taskledger_internal.times_of(entry json, OUT run_at timestamp with time zone, OUT run_in interval, OUT start_by timestamp with time zone, OUT finish_by timestamp with time zone) IS 'Returns the times of an entry of taskledger.enqueue_many; raises an error for an invalid one, by name.';

CREATE FUNCTION taskledger_internal.type_in_line(type taskledger.event_type, last taskledger.event_type, order_key text) RETURNS taskledger.event_type
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN ((type = 'released'::taskledger.event_type) AND (order_key IS NOT NULL) AND (last = ANY (ARRAY['scheduled'::taskledger.event_type, 'buried'::taskledger.event_type, 'cancelled'::taskledger.event_type, 'expired'::taskledger.event_type, 'discarded'::taskledger.event_type]))) THEN 'lined_up'::taskledger.event_type ELSE type END;

COMMENT ON FUNCTION taskledger_internal.type_in_line(type taskledger.event_type, last taskledger.event_type, order_key text) IS 'Returns the type of an event of a task with this order key after one of type last: lined_up in place of released, if the task must line up.';

CREATE FUNCTION taskledger_internal.unbegun_kinds(older_than interval, max_aged bigint) RETURNS TABLE(kind text, waiting bigint, late bigint, oldest_at timestamp with time zone)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.unbegun_kinds(older_than interval, max_aged bigint) IS 'Returns the kinds with live workers that are not paused and have tasks that became available before older_than ago: the available tasks as the projector has counted them, how many of these are so old, and when the oldest became available, null for a kind with more than max_aged tasks in all.';

CREATE FUNCTION taskledger_internal.unhandled_kinds(max_aged bigint) RETURNS TABLE(kind text, waiting bigint, oldest_ms bigint)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET jit TO 'off'
    AS $$
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

COMMENT ON FUNCTION taskledger_internal.unhandled_kinds(max_aged bigint) IS 'Returns the kinds with tasks in the projection that are available or running, and no live worker: the number of these tasks, and how many milliseconds the oldest has been so, -1 for a kind with more than max_aged tasks in all.';

CREATE FUNCTION taskledger_internal.unset(what text, name text) RETURNS boolean
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
  case what
    when 'limit' then delete from taskledger.kind_limit l where l.kind = unset.name;
    when 'start limit' then delete from taskledger.start_limit l where l.name = unset.name;
    when 'weight' then delete from taskledger.partition_weight w where w.partition = unset.name;
    when 'pause' then delete from taskledger.pause p where p.kind = unset.name;
    when 'schedule' then delete from taskledger.schedule s where s.name = unset.name;
  end case;
  return found;
end
$$;

COMMENT ON FUNCTION taskledger_internal.unset(what text, name text) IS 'Removes a setting of operators and reports whether there was one: the limit or the pause of a kind, a limit of starts, the weight of a partition, or a schedule.';

CREATE FUNCTION taskledger_internal.wake(enqueued bigint DEFAULT NULL::bigint) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    AS $$
begin
  if pg_catalog.pg_sequence_last_value('taskledger.asleep_until'::pg_catalog.regclass)::pg_catalog.float8
     operator(pg_catalog.>)
     (1000000.0::pg_catalog.float8 operator(pg_catalog.*) pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()))
     and pg_catalog.pg_notification_queue_usage() operator(pg_catalog.<) 0.5::pg_catalog.float8
  then
    perform pg_catalog.pg_notify('taskledger', coalesce(enqueued::pg_catalog.text, ''));
  end if;
end
$$;

COMMENT ON FUNCTION taskledger_internal.wake(enqueued bigint) IS 'Notifies the relay at the commit of the calling transaction, if it sleeps. The notification contains the position of an event that has enqueued a task, or nothing.';

CREATE FUNCTION taskledger_internal.with_moment(object text, name text, moment timestamp with time zone) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (moment IS NULL) THEN object ELSE ((((('{"'::text || name) || '":"'::text) || to_char((moment AT TIME ZONE 'UTC'::text), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'::text)) || '"'::text) || CASE WHEN (COALESCE(object, '{}'::text) ~ '^[[:space:]]*[{][[:space:]]*[}][[:space:]]*$'::text) THEN '}'::text ELSE (','::text || regexp_replace(object, '^[[:space:]]*[{]'::text, ''::text)) END) END;

COMMENT ON FUNCTION taskledger_internal.with_moment(object text, name text, moment timestamp with time zone) IS 'Returns a JSON object (null: an empty one) with a first member added: a moment as RFC 3339 in UTC to the microsecond. A null moment adds none.';

CREATE FUNCTION taskledger_internal.with_pass_if_dead(meta text, pass_if_dead boolean) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (NOT COALESCE(pass_if_dead, false)) THEN meta ELSE ('{"pass_if_dead":true'::text || CASE WHEN (COALESCE(meta, '{}'::text) ~ '^[[:space:]]*[{][[:space:]]*[}][[:space:]]*$'::text) THEN '}'::text ELSE (','::text || regexp_replace(meta, '^[[:space:]]*[{]'::text, ''::text)) END) END;

COMMENT ON FUNCTION taskledger_internal.with_pass_if_dead(meta text, pass_if_dead boolean) IS 'Returns the meta of an event with args, with the member pass_if_dead added if it is set.';

CREATE FUNCTION taskledger_internal.with_times(meta text, run_at timestamp with time zone, start_by timestamp with time zone, finish_by timestamp with time zone) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN taskledger_internal.with_moment(taskledger_internal.with_moment(taskledger_internal.with_moment(meta, 'finish_by'::text, finish_by), 'start_by'::text, start_by), 'run_at'::text, run_at);

COMMENT ON FUNCTION taskledger_internal.with_times(meta text, run_at timestamp with time zone, start_by timestamp with time zone, finish_by timestamp with time zone) IS 'Returns the meta of a task''s first event with its times added.';

CREATE TABLE taskledger.lease (
    name text NOT NULL COLLATE pg_catalog."C",
    holder text NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    alive_until timestamp with time zone NOT NULL,
    term interval DEFAULT '1 day'::interval NOT NULL,
    backend integer,
    detail json,
    login text DEFAULT SESSION_USER NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT lease_term_check CHECK ((((term >= '00:00:00'::interval) AND (term <= '1 day'::interval)) AND (date_part('year'::text, term) = (0)::double precision) AND (date_part('month'::text, term) = (0)::double precision)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='200');

COMMENT ON TABLE taskledger.lease IS 'One row for each service (relay, discarder, sealer, dispatcher, broker) and each worker process, valid until alive_until; and one for each session over HTTP with attempts of an ended process (detail: is_session). term is the duration for which it was last taken: if alive_until is further away, it was taken while the clock was ahead. backend is the server process of a connection that the holder keeps open; null without such a connection, or behind a pooler. login is the holder''s database login (session_user): no role changes the lease of another login''s worker. A lease saves double work; correctness never depends on it.';

CREATE FUNCTION taskledger_internal.worker_alive_ms(worker text, kind text) RETURNS TABLE(alive_ms bigint)
    LANGUAGE sql STABLE ROWS 1
    BEGIN ATOMIC
 SELECT (
         CASE
             WHEN (l.alive_until <= clock_timestamp()) THEN (0)::numeric
             ELSE GREATEST((0)::numeric, (EXTRACT(epoch FROM (LEAST(l.alive_until, (clock_timestamp() + l.term)) - clock_timestamp())) * (1000)::numeric))
         END)::bigint AS "greatest"
    FROM taskledger.lease l
   WHERE ((l.name = ('worker/'::text || worker_alive_ms.worker)) AND (worker_alive_ms.kind = ANY (taskledger_internal.lease_kinds(l.detail))));
END;

COMMENT ON FUNCTION taskledger_internal.worker_alive_ms(worker text, kind text) IS 'Returns for how many milliseconds a worker of a kind still counts as alive, 0 if it is lost; no row without a lease for this kind.';

CREATE TABLE taskledger.archive_batch (
    id integer NOT NULL,
    run integer NOT NULL,
    tasks integer NOT NULL,
    total bigint NOT NULL,
    events bigint NOT NULL,
    positions_xor bigint NOT NULL,
    is_sealed boolean NOT NULL,
    archived_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    first_position bigint NOT NULL,
    last_position bigint NOT NULL,
    last_xid xid8 NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    state taskledger.task_state NOT NULL,
    file text
);

COMMENT ON TABLE taskledger.archive_batch IS 'The tasks of a kind and state that one transaction has removed. Append-only.';

ALTER TABLE taskledger.archive_batch ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME taskledger.archive_batch_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE taskledger.archive_gap (
    reader text NOT NULL COLLATE pg_catalog."C",
    run integer NOT NULL,
    events bigint NOT NULL,
    first_position bigint NOT NULL,
    last_position bigint NOT NULL,
    archived_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE taskledger.archive_gap IS 'The events that readers of the feed have missed because the archive has removed them. Append-only.';

CREATE VIEW taskledger.archive_gaps AS
 SELECT g.reader,
    g.run,
    g.events,
    g.first_position,
    g.last_position,
    g.archived_at
   FROM taskledger.archive_gap g;

COMMENT ON VIEW taskledger.archive_gaps IS 'The events that readers of the feed have missed because the archive has removed them: a row for each batch, with their number, and the first and the last position among them.';

CREATE TABLE taskledger.archive_run (
    id integer NOT NULL,
    cutoff timestamp with time zone NOT NULL,
    top bigint NOT NULL,
    seen pg_snapshot NOT NULL,
    waits_for text[] NOT NULL,
    begun_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    scope text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    tasks bigint,
    place text,
    held bigint,
    held_by text,
    held_since timestamp with time zone
);

COMMENT ON TABLE taskledger.archive_run IS 'Internal: the runs of the archive, and the transactions that each waits for.';

ALTER TABLE taskledger.archive_run ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME taskledger.archive_run_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE taskledger.archive_setting (
    kind text NOT NULL COLLATE pg_catalog."C",
    keep interval,
    actor text NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT archive_setting_keep_check CHECK ((keep >= '00:00:00'::interval))
);

COMMENT ON TABLE taskledger.archive_setting IS 'How long the archive of serve keeps the finished tasks of a kind, as set by operators; null: forever. Other kinds have the time of serve --archive-after.';

CREATE TABLE taskledger.archived_key (
    hash uuid NOT NULL,
    rest bigint NOT NULL,
    version integer NOT NULL,
    batch integer NOT NULL
)
WITH (autovacuum_vacuum_insert_scale_factor='0.01', autovacuum_freeze_min_age='0');

COMMENT ON TABLE taskledger.archived_key IS 'The keys of removed tasks, by hash: they run again only by an enqueue that runs a finished task again.';

CREATE VIEW taskledger.broker AS
 SELECT l.holder,
    l.since,
    (l.alive_until > clock_timestamp()) AS is_alive,
    (l.detail ->> 'address'::text) AS address,
    (l.detail ->> 'ca'::text) AS ca,
    (l.detail ->> 'peers'::text) AS peers,
    substr(l.name, 8) AS member,
    COALESCE(((l.detail ->> 'asleep'::text))::boolean, false) AS is_asleep,
    (EXISTS ( SELECT
           FROM (pg_locks k
             JOIN pg_stat_activity a ON (((a.pid = k.pid) AND (a.usename = l.login))))
          WHERE ((k.locktype = 'advisory'::text) AND (k.objsubid = 1) AND k.granted AND (k.mode = 'ExclusiveLock'::text) AND (k.database = ( SELECT d.oid
                   FROM pg_database d
                  WHERE (d.datname = current_database()))) AND ((k.classid)::bigint = (((l.detail ->> 'nonce'::text))::bigint >> 32)) AND ((k.objid)::bigint = (((l.detail ->> 'nonce'::text))::bigint & '4294967295'::bigint))))) AS is_here
   FROM taskledger.lease l
  WHERE ((l.name = 'broker'::text) OR (l.name ~~ 'broker/%'::text));

COMMENT ON VIEW taskledger.broker IS 'The NATS server that serve runs; with --peers, one row for each member of the cluster, and peers lists all members. is_here: its process holds a lock in this database, whose number is the lease''s nonce. Otherwise this database is a copy and the row belongs to its original, or the process has ended, or is_asleep: it runs without a session until a message wakes it.';

CREATE TABLE taskledger.broker_user (
    name text NOT NULL COLLATE pg_catalog."C",
    password text NOT NULL,
    CONSTRAINT broker_user_name_check CHECK ((name ~ '^[A-Za-z0-9_-]{1,64}$'::text)),
    CONSTRAINT broker_user_password_check CHECK (((octet_length(password) >= 20) AND (octet_length(password) <= 100)))
);

COMMENT ON TABLE taskledger.broker_user IS 'The users of the NATS server that serve runs, with their passwords. A role reads the row of its own user alone.';

CREATE TABLE taskledger.cursor (
    reader text NOT NULL COLLATE pg_catalog."C",
    n bigint NOT NULL,
    seen pg_snapshot NOT NULL,
    seen_top bigint NOT NULL,
    seen_bound xid8 NOT NULL,
    until pg_snapshot,
    top bigint,
    bound xid8,
    after_position bigint DEFAULT 0 NOT NULL,
    audited pg_snapshot,
    unaudited bigint DEFAULT 0 NOT NULL,
    unaudited_xor bigint DEFAULT 0 NOT NULL,
    origin text NOT NULL,
    timeline bigint DEFAULT taskledger_internal.timeline() NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    mark json,
    login text,
    recorded_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE taskledger.cursor IS 'How far each reader of the feed has read. Append-only: the row with the highest n is the cursor.';

ALTER TABLE taskledger.event ALTER COLUMN "position" ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME taskledger.event_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW taskledger.cursors AS
 SELECT c.reader,
    c.n,
    c.seen,
    c.seen_top,
    c.seen_bound,
    c.until,
    c.top,
    c.bound,
    c.after_position,
    c.mark,
    c.login,
    c.recorded_at,
    c.timeline,
    (was.written_here AND (NOT was.ahead)) AS is_local,
    was.written_here
   FROM (taskledger.cursor c
     CROSS JOIN LATERAL ( SELECT ((c.origin = taskledger_internal.origin()) OR (((c.xmin)::text)::bigint = ((((c.xid)::text)::numeric % ('4294967296'::bigint)::numeric))::bigint)) AS written_here,
                CASE
                    WHEN (GREATEST(c.seen_top, c.top) > pg_sequence_last_value('taskledger.event_position_seq'::regclass)) THEN (taskledger_internal.position_behind() = 0)
                    ELSE false
                END AS ahead) was);

COMMENT ON VIEW taskledger.cursors IS 'The cursor of each reader of the feed: the row with the highest n. Older rows are kept for a time. If is_local is false, the row must not be used: it belongs to another database, so that its transaction IDs are meaningless here, or it is ahead of the sequence of positions.';

CREATE VIEW taskledger.erasures AS
 SELECT x.id,
    x.kind,
    x.biz_id,
    x.until,
    x.shard,
    x.first_at,
    x.last_at,
    x.erased_at,
    x.actor,
    x.reason
   FROM taskledger.erasure x;

COMMENT ON VIEW taskledger.erasures IS 'The tasks that were erased: data, meta and actor of their events up to position until are removed. id: of the act.';

CREATE TABLE taskledger.fence_key (
    key bytea NOT NULL,
    CONSTRAINT fence_key_key_check CHECK ((octet_length(key) = 32))
);

COMMENT ON TABLE taskledger.fence_key IS 'The key that seals the fences of attempts over HTTP. A process that knows it, and has a token, can end attempts that were given to the same token.';

CREATE TABLE taskledger.floor (
    "position" bigint NOT NULL,
    origin text DEFAULT taskledger_internal.origin() NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    raised_at timestamp with time zone,
    one boolean DEFAULT true NOT NULL,
    CONSTRAINT floor_one_check CHECK (one)
);

COMMENT ON TABLE taskledger.floor IS 'Internal: one row with the last position whose transaction id belongs to another database; 0: none. `taskledger rebase` writes it.';

CREATE TABLE taskledger.illegal_event (
    kind text NOT NULL COLLATE pg_catalog."C",
    biz_id text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    reason text NOT NULL,
    found_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE taskledger.illegal_event IS 'Events that are not allowed after the events before them: a role with INSERT on event wrote them. Their tasks are projected without them. `taskledger discard illegal` removes the rows once an operator has removed the cause.';

CREATE TABLE taskledger.key_life (
    kind text NOT NULL COLLATE pg_catalog."C",
    keep interval NOT NULL,
    actor text NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT key_life_keep_check CHECK ((keep >= '00:00:00'::interval))
);

COMMENT ON TABLE taskledger.key_life IS 'How long the keys of archived tasks of a kind stay known, as set by operators. Keys of other kinds stay known forever.';

CREATE TABLE taskledger.kind_limit (
    kind text NOT NULL COLLATE pg_catalog."C",
    max_waiting bigint NOT NULL,
    policy text NOT NULL,
    retry_after_ms bigint NOT NULL,
    actor text NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT kind_limit_kind_check CHECK ((NOT starts_with(kind, 'taskledger.'::text))),
    CONSTRAINT kind_limit_max_waiting_check CHECK ((max_waiting >= 0)),
    CONSTRAINT kind_limit_policy_check CHECK ((policy = ANY (ARRAY['reject'::text, 'discard'::text, 'discard_oldest'::text, 'caller_runs'::text]))),
    CONSTRAINT kind_limit_retry_after_ms_check CHECK ((retry_after_ms >= 0)),
    CONSTRAINT kind_limit_updated_at_check CHECK (((updated_at >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (updated_at <= '9998-12-31 00:00:00+00'::timestamp with time zone)))
);

COMMENT ON TABLE taskledger.kind_limit IS 'How many tasks of a kind may wait, as set by an operator. A kind without a row is unlimited.';

CREATE VIEW taskledger.kind_minutes AS
 SELECT s.kind,
    s.minute,
    s.enqueued,
    s.started,
    s.succeeded,
    s.failed,
    s.dead,
    s.cancelled,
    s.waiting,
    s.running
   FROM taskledger.kind_stats s;

COMMENT ON VIEW taskledger.kind_minutes IS 'Events by kind and minute: add up the rows. Minutes of archived tasks are merged by hour, in its first minute. waiting and running are histograms: the first bucket counts times below 1 ms, bucket i times from 2^((i-2)/4) to 2^((i-1)/4) ms.';

CREATE TABLE taskledger.start_limit (
    name text NOT NULL COLLATE pg_catalog."C",
    per text COLLATE pg_catalog."C",
    max_running integer,
    rate integer,
    period_s integer,
    burst integer,
    window_us bigint,
    ring bigint,
    actor text NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT start_limit_check CHECK ((((burst >= 1) AND (burst <= 10000)) AND ((rate % burst) = 0))),
    CONSTRAINT start_limit_check1 CHECK (((max_running IS NOT NULL) OR (rate IS NOT NULL))),
    CONSTRAINT start_limit_check2 CHECK ((num_nulls(rate, period_s, burst, window_us, ring) = ANY (ARRAY[0, 5]))),
    CONSTRAINT start_limit_max_running_check CHECK (((max_running >= 0) AND (max_running <= 10000))),
    CONSTRAINT start_limit_name_check CHECK (((name <> ''::text) AND (octet_length(name) <= 128))),
    CONSTRAINT start_limit_name_check1 CHECK ((NOT starts_with(name, 'taskledger.'::text))),
    CONSTRAINT start_limit_per_check CHECK ((per = ANY (ARRAY['partition'::text, 'order_key'::text]))),
    CONSTRAINT start_limit_period_s_check CHECK ((period_s = ANY (ARRAY[1, 60, 3600, 86400]))),
    CONSTRAINT start_limit_rate_check CHECK (((rate >= 1) AND (rate <= 100000000))),
    CONSTRAINT start_limit_updated_at_check CHECK (((updated_at >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (updated_at <= '9998-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT start_limit_window_us_check CHECK ((window_us > 0))
);

COMMENT ON TABLE taskledger.start_limit IS 'Internal: limits of starts, as set by operators. window_us: how long a token cannot be used again. ring: of tokens; a change of burst begins another.';

CREATE VIEW taskledger_internal.newest_permits AS
 SELECT l.name,
    w.value,
    w.slot,
    w.n,
    w.kind,
    w.biz_id,
    w.version,
    w.attempt,
    w.taken_at,
    w.actor
   FROM (taskledger.start_limit l
     CROSS JOIN LATERAL ( WITH RECURSIVE walk AS (
                ( SELECT p.value,
                    p.slot,
                    p.n,
                    p.kind,
                    p.biz_id,
                    p.version,
                    p.attempt,
                    p.taken_at,
                    p.actor
                   FROM taskledger.permit p
                  WHERE (p.name = l.name)
                  ORDER BY p.value DESC, p.slot DESC, p.n DESC
                 LIMIT 1)
                UNION ALL
                 SELECT q.value,
                    q.slot,
                    q.n,
                    q.kind,
                    q.biz_id,
                    q.version,
                    q.attempt,
                    q.taken_at,
                    q.actor
                   FROM (walk above
                     CROSS JOIN LATERAL ( SELECT p.value,
                            p.slot,
                            p.n,
                            p.kind,
                            p.biz_id,
                            p.version,
                            p.attempt,
                            p.taken_at,
                            p.actor
                           FROM taskledger.permit p
                          WHERE ((p.name = l.name) AND (ROW(p.value, p.slot) < ROW(above.value, above.slot)))
                          ORDER BY p.value DESC, p.slot DESC, p.n DESC
                         LIMIT 1) q)
                )
         SELECT w_1.value,
            w_1.slot,
            w_1.n,
            w_1.kind,
            w_1.biz_id,
            w_1.version,
            w_1.attempt,
            w_1.taken_at,
            w_1.actor
           FROM walk w_1) w)
  WHERE (l.max_running IS NOT NULL);

COMMENT ON VIEW taskledger_internal.newest_permits IS 'The newest row of each slot of each limit, whether or not its attempt runs.';

CREATE VIEW taskledger.permits AS
 SELECT p.name,
    p.value,
    p.slot,
    p.n,
    p.kind,
    p.biz_id,
    LEAST(p.version, h.version) AS version,
    COALESCE(p.attempt, (h.attempt + 1)) AS attempt,
    p.taken_at,
        CASE
            WHEN (h.version < p.version) THEN p.actor
            ELSE h.actor
        END AS actor,
    (h.version >= p.version) AS is_recorded
   FROM (taskledger_internal.newest_permits p
     CROSS JOIN LATERAL ( SELECT e.type,
            e.version,
            e.attempt,
            e.actor
           FROM taskledger.event e
          WHERE ((e.kind = p.kind) AND (e.biz_id = p.biz_id))
          ORDER BY e.version DESC
         LIMIT 1) h)
  WHERE (((h.type = ANY (ARRAY['started'::taskledger.event_type, 'progressed'::taskledger.event_type])) AND ((h.version = p.version) OR ((h.attempt = p.attempt) AND (taskledger_internal.args_version(p.kind, p.biz_id) <= p.version)))) OR ((h.version = (p.version - 1)) AND (p.taken_at > (clock_timestamp() - taskledger_internal.permit_lasts()))));

COMMENT ON VIEW taskledger.permits IS 'The permits of running attempts, with the worker that runs each. name: of the limit. value: of the column that the limit is per, else empty. version: of the start, or if that is not recorded yet of the event before.';

CREATE TABLE taskledger.start_token (
    ring bigint NOT NULL,
    n bigint NOT NULL,
    taken_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    value text NOT NULL COLLATE pg_catalog."C"
)
WITH (autovacuum_vacuum_scale_factor='0.01', autovacuum_vacuum_cost_delay='0');

COMMENT ON TABLE taskledger.start_token IS 'Internal: when the tokens of a rate were used. Row n + burst is the next use of the token of row n.';

CREATE VIEW taskledger_internal.start_rings AS
 SELECT l.name,
    l.ring,
    l.burst,
    ((l.window_us)::double precision * '00:00:00.000001'::interval) AS "window",
    v.value,
    v.n AS newest
   FROM (taskledger.start_limit l
     CROSS JOIN LATERAL ( WITH RECURSIVE walk AS (
                ( SELECT t.value,
                    t.n
                   FROM taskledger.start_token t
                  WHERE (t.ring = l.ring)
                  ORDER BY t.value DESC, t.n DESC
                 LIMIT 1)
                UNION ALL
                 SELECT q.value,
                    q.n
                   FROM (walk above
                     CROSS JOIN LATERAL ( SELECT t.value,
                            t.n
                           FROM taskledger.start_token t
                          WHERE ((t.ring = l.ring) AND (t.value < above.value))
                          ORDER BY t.value DESC, t.n DESC
                         LIMIT 1) q)
                )
         SELECT w.value,
            w.n
           FROM walk w) v);

COMMENT ON VIEW taskledger_internal.start_rings IS 'The rings of tokens, for each value of a limit, with the number of their newest use.';

CREATE VIEW taskledger_internal.recent_starts AS
 SELECT r.name,
    r.value,
    t.taken_at
   FROM (taskledger_internal.start_rings r
     JOIN taskledger.start_token t ON (((t.ring = r.ring) AND (t.value = r.value) AND (t.n > (r.newest - r.burst)))))
  WHERE (t.taken_at > (clock_timestamp() - r."window"));

COMMENT ON VIEW taskledger_internal.recent_starts IS 'When the tokens of rates were used that cannot be used again yet.';

CREATE VIEW taskledger.limit_use AS
 SELECT l.name,
    ( SELECT count(*) AS count
           FROM taskledger.permits p
          WHERE (p.name = l.name)) AS running,
    ( SELECT min(p.taken_at) AS min
           FROM taskledger.permits p
          WHERE (p.name = l.name)) AS oldest_at,
    ( SELECT (min(s.taken_at) + ((l.window_us)::double precision * '00:00:00.000001'::interval))
           FROM taskledger_internal.recent_starts s
          WHERE ((l.rate IS NOT NULL) AND (s.name = l.name))
         HAVING (count(*) >= l.burst)) AS next_at
   FROM taskledger.start_limit l;

COMMENT ON VIEW taskledger.limit_use IS 'The use of each limit. running: the attempts that hold a permit; after a limit was lowered these can be more than it allows, until they end. oldest_at: since when the first of them has. next_at: when the next task can start, if the rate allows none now; only of limits with one count.';

CREATE TABLE taskledger.limited_kind (
    kind text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    weight integer DEFAULT 1 NOT NULL,
    CONSTRAINT limited_kind_kind_check CHECK ((NOT starts_with(kind, 'taskledger.'::text))),
    CONSTRAINT limited_kind_weight_check CHECK (((weight >= 1) AND (weight <= 10000)))
);

COMMENT ON TABLE taskledger.limited_kind IS 'Internal: which limits a kind has. weight: how many tokens of its rate a start takes.';

CREATE SEQUENCE taskledger.limits_set
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

COMMENT ON SEQUENCE taskledger.limits_set IS 'Internal: how many limits have been set; null while there has been none.';

CREATE TABLE taskledger.login (
    id integer NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE taskledger.login IS 'Internal: the names of the logins that wrote events, by the id in event.login_id. A name may have several ids.';

ALTER TABLE taskledger.login ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME taskledger.login_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW taskledger.logins AS
 SELECT l.id,
    l.name,
    l.since
   FROM taskledger.login l;

COMMENT ON VIEW taskledger.logins IS 'The database logins (session_user) that wrote events, since when, by the id in event.login_id. A name may have several ids.';

CREATE TABLE taskledger.moment (
    at timestamp with time zone NOT NULL,
    snapshot pg_snapshot NOT NULL,
    top bigint NOT NULL,
    bound xid8 NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL
);

COMMENT ON TABLE taskledger.moment IS 'The events visible at a time, to read the past in the order of commits. Append-only; old rows are thinned.';

CREATE VIEW taskledger.moments AS
 SELECT m.at,
    m.snapshot,
    m.top,
    m.bound
   FROM taskledger.moment m
  WHERE (((m.xmin)::text)::bigint = ((((m.xid)::text)::numeric % ('4294967296'::bigint)::numeric))::bigint);

COMMENT ON VIEW taskledger.moments IS 'The rows of the table moment whose transaction IDs belong to this database.';

CREATE TABLE taskledger.mortal_key (
    batch integer NOT NULL,
    hash uuid NOT NULL
);

COMMENT ON TABLE taskledger.mortal_key IS 'Internal: the archived keys that were removed while their kind had a limited time in key_life.';

CREATE TABLE taskledger.mutex (
    name text NOT NULL COLLATE pg_catalog."C",
    is_locked boolean
);

COMMENT ON TABLE taskledger.mutex IS 'Internal: rows to lock: schedules, seal, workers/ with each kind, alarm/ with each receiver of alarms, subscribers/ with each login that has subscribers, leases/ with each login that has leases of workers.';

CREATE VIEW taskledger.outbox AS
 WITH relay AS MATERIALIZED (
         SELECT c.seen,
            c.seen_top,
            c.seen_bound,
            c.until,
            c.bound,
            c.after_position,
            taskledger_internal.feed_floor() AS floor
           FROM taskledger.cursors c
          WHERE (c.reader = 'relay'::text)
          ORDER BY c.n DESC
         LIMIT 1
        )
 SELECT late."position",
    late.kind,
    late.biz_id,
    late.version,
    late.type,
    late.recorded_at
   FROM ((relay r
     CROSS JOIN LATERAL taskledger_internal.late_xids(r.seen, r.seen_bound) x(x))
     CROSS JOIN LATERAL ( SELECT e."position",
            e.kind,
            e.biz_id,
            e.version,
            e.type,
            e.recorded_at
           FROM taskledger.event e
          WHERE ((ROW(e.xid, e."position") > ROW(x.x, r.floor)) AND (ROW(e.xid, e."position") <= ROW(x.x, r.seen_top)) AND ((r.until IS NULL) OR (e."position" > r.after_position) OR (NOT pg_visible_in_snapshot(x.x, r.until))))
         OFFSET 0) late)
UNION ALL
 SELECT unseen."position",
    unseen.kind,
    unseen.biz_id,
    unseen.version,
    unseen.type,
    unseen.recorded_at
   FROM ((relay r
     CROSS JOIN LATERAL taskledger_internal.late_xids(r.until, r.bound) x(x))
     CROSS JOIN LATERAL ( SELECT e."position",
            e.kind,
            e.biz_id,
            e.version,
            e.type,
            e.recorded_at
           FROM taskledger.event e
          WHERE ((ROW(e.xid, e."position") > ROW(x.x, GREATEST(r.seen_top, r.floor))) AND (ROW(e.xid, e."position") <= ROW(x.x, r.after_position)) AND (NOT pg_visible_in_snapshot(x.x, r.until)))
         OFFSET 0) unseen)
  WHERE (r.until IS NOT NULL)
UNION ALL
 SELECT e."position",
    e.kind,
    e.biz_id,
    e.version,
    e.type,
    e.recorded_at
   FROM taskledger.event e
  WHERE (e."position" > COALESCE(( SELECT
                CASE
                    WHEN (r.until IS NULL) THEN r.seen_top
                    ELSE GREATEST(r.seen_top, r.after_position)
                END AS "greatest"
           FROM relay r), (0)::bigint));

COMMENT ON VIEW taskledger.outbox IS 'The events that the relay has not yet published, in no particular order.';

CREATE UNLOGGED TABLE taskledger.over_limit (
    kind text NOT NULL COLLATE pg_catalog."C",
    biz_id text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL
);

COMMENT ON TABLE taskledger.over_limit IS 'Internal: tasks over a limit that an open transaction has begun, and must discard. Empty outside of transactions.';

CREATE TABLE taskledger.task_count (
    kind text NOT NULL COLLATE pg_catalog."C",
    state taskledger.task_state NOT NULL,
    n bigint NOT NULL,
    value bigint NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='1000');

COMMENT ON TABLE taskledger.task_count IS 'The number of tasks of each kind and state. Append-only: for each kind and state, the row with the highest n counts.';

CREATE VIEW taskledger_internal.task_totals AS
 SELECT c.kind,
    c.state,
    c.n,
    c.value AS tasks
   FROM taskledger.task_count c;

COMMENT ON VIEW taskledger_internal.task_totals IS 'Running totals of tasks by kind and state. The row with the highest n counts; it is found by the index.';

CREATE VIEW taskledger.overload AS
 SELECT l.kind,
    l.policy,
    l.max_waiting,
    l.retry_after_ms,
    COALESCE(c.value, (0)::bigint) AS waiting,
    ((l.policy <> 'discard_oldest'::text) AND (COALESCE(c.value, (0)::bigint) >= l.max_waiting)) AS closed,
    s.value AS scheduled,
    ((l.policy <> 'discard_oldest'::text) AND ((COALESCE(c.value, (0)::bigint) + s.value) >= l.max_waiting)) AS closed_later
   FROM ((taskledger.kind_limit l
     LEFT JOIN LATERAL ( SELECT t.tasks AS value
           FROM taskledger_internal.task_totals t
          WHERE ((t.kind = l.kind) AND (t.state = 'available'::taskledger.task_state))
          ORDER BY t.n DESC
         LIMIT 1) c ON (true))
     CROSS JOIN LATERAL ( SELECT (COALESCE(( SELECT t.tasks
                   FROM taskledger_internal.task_totals t
                  WHERE ((t.kind = l.kind) AND (t.state = 'scheduled'::taskledger.task_state))
                  ORDER BY t.n DESC
                 LIMIT 1), (0)::bigint) + COALESCE(( SELECT t.tasks
                   FROM taskledger_internal.task_totals t
                  WHERE ((t.kind = l.kind) AND (t.state = 'in_line'::taskledger.task_state))
                  ORDER BY t.n DESC
                 LIMIT 1), (0)::bigint)) AS value) s);

COMMENT ON VIEW taskledger.overload IS 'Each kind with a limit, its numbers of available tasks (waiting) and of tasks that are scheduled or in line (scheduled), as counted by the projector, and whether enqueueing is closed: for tasks that become available at once, and for others (closed_later). Tasks that the projector has not yet counted can exceed the limit.';

CREATE TABLE taskledger.parked (
    "position" bigint NOT NULL,
    kind text NOT NULL COLLATE pg_catalog."C",
    biz_id text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    reason text NOT NULL,
    parked_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    discarded boolean DEFAULT false NOT NULL
);

COMMENT ON TABLE taskledger.parked IS 'Events that the relay could not publish. They block no others. The status is degraded until they are discarded.';

CREATE TABLE taskledger.partition_weight (
    partition text NOT NULL COLLATE pg_catalog."C",
    weight numeric NOT NULL,
    actor text NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT partition_weight_partition_check CHECK ((((octet_length(partition) >= 1) AND (octet_length(partition) <= 64)) AND (partition !~ '[\u0001-\u001f\u007f-\u009f]'::text))),
    CONSTRAINT partition_weight_updated_at_check CHECK (((updated_at >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (updated_at <= '9998-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT partition_weight_weight_check CHECK (((weight >= 0.01) AND (weight <= (100)::numeric)))
);

COMMENT ON TABLE taskledger.partition_weight IS 'The weights of partitions, as set by operators. The weight of a partition without a row is 1. While tasks of a kind and priority wait in two partitions, they begin in proportion to the weights.';

CREATE TABLE taskledger.pause (
    kind text NOT NULL COLLATE pg_catalog."C",
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL,
    CONSTRAINT pause_since_check CHECK (((since >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (since <= '9998-12-31 00:00:00+00'::timestamp with time zone)))
);

COMMENT ON TABLE taskledger.pause IS 'The kinds that an operator has paused: no worker starts their tasks.';

CREATE VIEW taskledger.paused_kinds AS
 SELECT p.kind,
    p.since,
    p.actor,
    p.reason
   FROM taskledger.pause p;

COMMENT ON VIEW taskledger.paused_kinds IS 'The kinds whose tasks no worker starts, since when, by whom and why.';

CREATE SEQUENCE taskledger.rejected
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

COMMENT ON SEQUENCE taskledger.rejected IS 'Counts the calls that were rejected because too many tasks of their kind wait, rolled back or not.';

CREATE TABLE taskledger.schedule (
    name text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL COLLATE pg_catalog."C",
    args json,
    cron text,
    zone text,
    every_ms bigint,
    anchor timestamp with time zone,
    fixed_delay_ms bigint,
    missed text NOT NULL,
    missed_limit integer NOT NULL,
    overlap text NOT NULL,
    paused_at timestamp with time zone,
    paused_by text,
    pause_reason text,
    revision integer DEFAULT 1 NOT NULL,
    actor text NOT NULL,
    updated_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    next_at timestamp with time zone,
    last_at timestamp with time zone,
    last_kind text COLLATE pg_catalog."C",
    last_biz_id text COLLATE pg_catalog."C",
    passed bigint DEFAULT 0 NOT NULL,
    passed_at timestamp with time zone,
    CONSTRAINT schedule_anchor_check CHECK (((anchor >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (anchor <= '9998-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT schedule_check CHECK ((num_nonnulls(cron, every_ms, fixed_delay_ms) = 1)),
    CONSTRAINT schedule_check1 CHECK (((cron IS NULL) = (zone IS NULL))),
    CONSTRAINT schedule_check2 CHECK (((every_ms IS NULL) = (anchor IS NULL))),
    CONSTRAINT schedule_check3 CHECK ((num_nonnulls(paused_at, paused_by, pause_reason) = ANY (ARRAY[0, 3]))),
    CONSTRAINT schedule_every_ms_check CHECK (((every_ms >= 1000) AND (every_ms <= '3153600000000'::bigint))),
    CONSTRAINT schedule_fixed_delay_ms_check CHECK (((fixed_delay_ms >= 1000) AND (fixed_delay_ms <= '3153600000000'::bigint))),
    CONSTRAINT schedule_last_at_check CHECK (((last_at >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (last_at <= '9998-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT schedule_name_check CHECK (((name ~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$'::text) AND (octet_length(name) <= 128))),
    CONSTRAINT schedule_next_at_check CHECK (((next_at >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (next_at <= '9998-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT schedule_passed_at_check CHECK (((passed_at >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (passed_at <= '9998-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT schedule_paused_at_check CHECK (((paused_at >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (paused_at <= '9998-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT schedule_updated_at_check CHECK (((updated_at >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (updated_at <= '9998-12-31 00:00:00+00'::timestamp with time zone)))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='200');

COMMENT ON TABLE taskledger.schedule IS 'The schedules of periodic tasks, and each schedule''s next firing.';

CREATE TABLE taskledger.seal (
    batch bigint NOT NULL,
    first_leaf bigint NOT NULL,
    first_node bigint NOT NULL,
    top bigint NOT NULL,
    is_late boolean NOT NULL,
    positions bigint[] NOT NULL,
    leaves bytea NOT NULL,
    nodes bytea NOT NULL,
    salts bytea[] NOT NULL,
    sealed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT seal_lengths CHECK (((cardinality(positions) > 0) AND (octet_length(leaves) = (32 * cardinality(positions))) AND ((octet_length(nodes) % 32) = 0) AND (cardinality(salts) = cardinality(positions))))
);
ALTER TABLE ONLY taskledger.seal ALTER COLUMN leaves SET STORAGE EXTERNAL;
ALTER TABLE ONLY taskledger.seal ALTER COLUMN nodes SET STORAGE EXTERNAL;

COMMENT ON TABLE taskledger.seal IS 'The sealed events: leaves of a Merkle tree, batch by batch. Append-only, except that erasure replaces salts, and that the archive removes rows whose tiles it contains.';

CREATE TABLE taskledger.seal_cut (
    batch bigint NOT NULL,
    leaves bigint NOT NULL,
    top bigint NOT NULL,
    positions_xor bigint NOT NULL,
    edge bytea NOT NULL,
    place text NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL
);
ALTER TABLE ONLY taskledger.seal_cut ALTER COLUMN edge SET STORAGE EXTERNAL;

COMMENT ON TABLE taskledger.seal_cut IS 'Internal: which rows of seal were removed, where the tiles of their tree are, and its partial tiles.';

CREATE TABLE taskledger.seal_rest (
    "position" bigint NOT NULL,
    leaf bigint NOT NULL,
    salt bytea NOT NULL
);

COMMENT ON TABLE taskledger.seal_rest IS 'Internal: leaf and salt of the events that are in the table event, and whose rows of seal were removed.';

CREATE TABLE taskledger.start_limit_change (
    is_row boolean DEFAULT true NOT NULL,
    n bigint DEFAULT 0 NOT NULL,
    CONSTRAINT start_limit_change_is_row_check CHECK (is_row)
);

COMMENT ON TABLE taskledger.start_limit_change IS 'Internal: the number of start_limits_set at the last change of a limit of starts. It has one row.';

CREATE VIEW taskledger.start_limits AS
 SELECT l.name,
    k.kinds,
    k.weights,
    l.per,
    l.max_running,
    l.rate,
    l.period_s,
    l.burst,
    l.window_us,
    l.actor,
    l.updated_at
   FROM (taskledger.start_limit l
     CROSS JOIN LATERAL ( SELECT array_agg(k_1.kind ORDER BY k_1.kind) AS kinds,
            array_agg(k_1.weight ORDER BY k_1.kind) AS weights
           FROM taskledger.limited_kind k_1
          WHERE (k_1.name = l.name)) k);

COMMENT ON VIEW taskledger.start_limits IS 'The limits of starts. kinds and weights: of the kinds that a limit covers. per: the column whose values have counts of their own, or null. max_running: how many of the tasks may run at a time. rate: how many may start in period_s seconds, and burst of them in window_us microseconds.';

CREATE SEQUENCE taskledger.start_limits_set
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

COMMENT ON SEQUENCE taskledger.start_limits_set IS 'Internal: how often a limit of starts has been set; null while there has been none.';

CREATE VIEW taskledger.subscribers AS
 WITH RECURSIVE name AS (
        ( SELECT c_1.reader
           FROM taskledger.cursor c_1
          WHERE ((c_1.reader >= 'subscriber/'::text) AND (c_1.reader < 'subscriber0'::text))
          ORDER BY c_1.reader
         LIMIT 1)
        UNION ALL
         SELECT ( SELECT c_1.reader
                   FROM taskledger.cursor c_1
                  WHERE ((c_1.reader > n_1.reader) AND (c_1.reader < 'subscriber0'::text))
                  ORDER BY c_1.reader
                 LIMIT 1) AS reader
           FROM name n_1
          WHERE (n_1.reader IS NOT NULL)
        )
 SELECT substr(n.reader, 12) AS name,
    c.n,
    COALESCE(((c.mark ->> 'paused'::text) = 'true'::text), false) AS is_paused,
    c.mark,
    GREATEST(c.after_position, c.seen_top) AS "position",
    c.recorded_at AS moved_at,
    c.is_local,
    c.login
   FROM (name n
     CROSS JOIN LATERAL ( SELECT m.n,
            m.mark,
            m.after_position,
            m.seen_top,
            m.recorded_at,
            m.is_local,
            m.login
           FROM taskledger.cursors m
          WHERE (m.reader = n.reader)
          ORDER BY m.n DESC
         LIMIT 1) c)
  WHERE (n.reader IS NOT NULL);

COMMENT ON VIEW taskledger.subscribers IS 'The subscribers: each continues about at a position, unless it is paused. taskledger_internal.feed_lag counts the events that it has not passed.';

CREATE TABLE taskledger.task (
    enqueued_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    state taskledger.task_state NOT NULL,
    version integer NOT NULL,
    attempt integer NOT NULL,
    failures integer NOT NULL,
    shard smallint NOT NULL,
    priority smallint DEFAULT 3 NOT NULL,
    aside taskledger.task_state,
    kind text NOT NULL COLLATE pg_catalog."C",
    biz_id text NOT NULL COLLATE pg_catalog."C",
    partition text DEFAULT ''::text NOT NULL COLLATE pg_catalog."C",
    error text,
    fingerprint text COLLATE pg_catalog."C",
    due_at timestamp with time zone,
    cause text COLLATE pg_catalog."C",
    lingering bigint
)
WITH (fillfactor='50');

COMMENT ON TABLE taskledger.task IS 'The current state of each task, derived from the events by the projector, which may lag behind.';

CREATE VIEW taskledger.task_counts AS
 WITH RECURSIVE newest AS (
        ( SELECT c.kind,
            c.state,
            c.value
           FROM taskledger.task_count c
          ORDER BY c.kind DESC, c.state DESC, c.n DESC
         LIMIT 1)
        UNION ALL
         SELECT c.kind,
            c.state,
            c.value
           FROM (newest
             CROSS JOIN LATERAL ( SELECT o.kind,
                    o.state,
                    o.value
                   FROM taskledger.task_count o
                  WHERE (ROW(o.kind, o.state) < ROW(newest.kind, newest.state))
                  ORDER BY o.kind DESC, o.state DESC, o.n DESC
                 LIMIT 1) c)
        )
 SELECT n.kind,
    n.state,
    t.tasks
   FROM (newest n
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN (n.state = ANY (ARRAY['succeeded'::taskledger.task_state, 'cancelled'::taskledger.task_state, 'expired'::taskledger.task_state, 'discarded'::taskledger.task_state])) THEN (n.value - taskledger_internal.archived_tasks(n.kind, n.state))
                    ELSE n.value
                END AS tasks) t)
  WHERE (t.tasks <> 0);

COMMENT ON VIEW taskledger.task_counts IS 'The number of tasks of each kind and state, without zeros, as counted by the projector, and without archived tasks, which task_count includes. Its cost grows with the number of kinds, not of tasks.';

CREATE TABLE taskledger.task_tag (
    tag text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL
);

COMMENT ON TABLE taskledger.task_tag IS 'The tags of tasks, by the position of the first event. Rows are only added; a rebuild recreates them.';

CREATE VIEW taskledger.tasks AS
 SELECT t.kind,
    t.biz_id,
    t.shard,
    t.state,
    t.aside AS exceptional,
    t.version,
    t.attempt,
    t.failures,
    t.enqueued_at,
    t.updated_at,
    t.error,
    t.fingerprint,
    t.due_at,
    t.cause,
    t.priority,
    t.partition
   FROM taskledger.task t;

COMMENT ON VIEW taskledger.tasks IS 'The current state of each task, as recorded by the projector, which may lag behind the events. exceptional: the state, null if it is available, running or succeeded. fingerprint: of a dead task''s error. due_at: when a scheduled or retrying task is released. cause: kind/biz_id of the task whose event led to this task. priority: 1 urgent, 2 high, 3 normal, 4 low. partition: the tenant or other group of the task, '''' for none.';

CREATE VIEW taskledger.timers AS
 SELECT t.due_at,
    t.kind,
    t.biz_id,
    t.version,
    t.reason
   FROM taskledger.timer t;

COMMENT ON VIEW taskledger.timers IS 'The timers of all tasks: when each is due, and its reason: due, retry, start_by, finish_by, or after (never due).';

CREATE TABLE taskledger.token (
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    hash bytea,
    role text NOT NULL,
    kinds text[] DEFAULT '{}'::text[] NOT NULL,
    rate integer,
    created_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    actor text DEFAULT SESSION_USER NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    revoked_by text,
    link_until timestamp with time zone,
    redeemed_at timestamp with time zone,
    CONSTRAINT token_check CHECK (((link_until IS NULL) OR ((hash IS NOT NULL) AND (expires_at IS NOT NULL)))),
    CONSTRAINT token_created_at_check CHECK (((created_at >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (created_at <= '9998-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT token_expires_at_check CHECK (((expires_at >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (expires_at <= '9998-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT token_hash_check CHECK ((octet_length(hash) = 32)),
    CONSTRAINT token_id_check CHECK ((id ~ '^[a-z0-9]{1,32}$'::text)),
    CONSTRAINT token_kinds_check CHECK ((cardinality(kinds) <= 1000)),
    CONSTRAINT token_link_until_check CHECK (((link_until >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (link_until <= '9998-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT token_name_check CHECK ((name ~ '^[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}$'::text)),
    CONSTRAINT token_rate_check CHECK ((rate > 0)),
    CONSTRAINT token_redeemed_at_check CHECK (((redeemed_at >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (redeemed_at <= '9998-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT token_revoked_at_check CHECK (((revoked_at >= '1900-01-01 00:00:00+00'::timestamp with time zone) AND (revoked_at <= '9998-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT token_role_check CHECK ((role = ANY (ARRAY['viewer'::text, 'producer'::text, 'worker'::text, 'operator'::text, 'admin'::text])))
);

COMMENT ON TABLE taskledger.token IS 'The callers of the HTTP API: the hashes of their tokens, their roles and kinds.';

CREATE VIEW taskledger.workers AS
 SELECT l.holder AS worker,
    l.since,
    l.alive_until,
    (
        CASE
            WHEN (l.alive_until <= clock_timestamp()) THEN (0)::numeric
            ELSE GREATEST((0)::numeric, (EXTRACT(epoch FROM (LEAST(l.alive_until, (clock_timestamp() + l.term)) - clock_timestamp())) * (1000)::numeric))
        END)::bigint AS alive_ms,
    ((EXTRACT(epoch FROM l.term) * (1000)::numeric))::bigint AS term_ms,
    l.detail
   FROM taskledger.lease l
  WHERE ((l.name ~~ 'worker/%'::text) AND ((l.since >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (l.since <= '9999-01-01 00:00:00+00'::timestamp with time zone)) AND (taskledger_internal.lease_kinds(l.detail) IS NOT NULL) AND (strpos((l.detail)::text, '"is_session":true'::text) = 0));

COMMENT ON VIEW taskledger.workers IS 'The workers that are alive, or were lost within about a day; without leases of sessions. alive_ms: for how many milliseconds a worker still counts as alive, 0 if it is lost; term_ms: for how many after each renewal. detail: its kinds, guarantees and shards.';

CREATE VIEW taskledger_internal.archive_settings AS
 SELECT s.kind,
    s.keep,
    s.actor,
    s.updated_at
   FROM taskledger.archive_setting s;

COMMENT ON VIEW taskledger_internal.archive_settings IS 'The kinds whose finished tasks the archive of serve keeps for a time of their own; null: forever.';

CREATE VIEW taskledger_internal.claimed_kinds AS
 SELECT DISTINCT k.kind
   FROM (taskledger.lease l
     CROSS JOIN LATERAL unnest(taskledger_internal.lease_kinds(l.detail)) k(kind))
  WHERE ((l.name ~~ 'worker/%'::text) AND (l.alive_until > clock_timestamp()) AND ((l.detail ->> 'key'::text) IS NULL) AND (strpos((l.detail)::text, '"is_session":true'::text) = 0));

COMMENT ON VIEW taskledger_internal.claimed_kinds IS 'The kinds of live workers that claim tasks, and do not ask the dispatcher for them.';

CREATE VIEW taskledger_internal.dispatcher AS
 SELECT ((l.detail ->> 'epoch'::text))::bigint AS epoch,
    (l.detail ->> 'key'::text) AS key,
    ((l.detail ->> 'latency_us'::text))::bigint AS latency_us
   FROM taskledger.lease l
  WHERE (l.name = 'dispatcher'::text);

COMMENT ON VIEW taskledger_internal.dispatcher IS 'The number of the active dispatcher, or of the last one, its public key (hex), and for how many microseconds it lets events gather. Without one, no row.';

CREATE VIEW taskledger_internal.event_fence AS
 SELECT event.kind,
    event.biz_id,
    event.version,
    event.attempt,
    event.shard,
    event.type,
    event.login_id,
    event.actor,
    event.priority,
    event.partition,
    event.order_key
   FROM taskledger.event;

COMMENT ON VIEW taskledger_internal.event_fence IS 'The events that workers'' events must follow. Only a policy needs it.';

CREATE VIEW taskledger_internal.feed_holds AS
 SELECT c.reader,
        CASE
            WHEN w.is_local THEN COALESCE(w.audited, c.seen)
            ELSE '1:1:'::pg_snapshot
        END AS seen,
        CASE
            WHEN (w.is_local AND (w.audited IS NULL)) THEN c.until
            ELSE NULL::pg_snapshot
        END AS until,
    c.after_position,
        CASE
            WHEN w.is_local THEN c.seen
            ELSE '1:1:'::pg_snapshot
        END AS read,
        CASE
            WHEN w.is_local THEN c.until
            ELSE NULL::pg_snapshot
        END AS read_until,
    (starts_with(c.reader, 'subscriber/'::text) OR (c.reader = 'relay'::text)) AS is_bounded,
    (c.reader = 'line'::text) AS is_of_lines
   FROM (( SELECT DISTINCT ON (n.reader) n.reader,
            n.n,
            n.seen,
            n.seen_top,
            n.seen_bound,
            n.until,
            n.top,
            n.bound,
            n.after_position,
            n.audited,
            n.unaudited,
            n.unaudited_xor,
            n.origin,
            n.timeline,
            n.xid,
            n.mark,
            n.login,
            n.recorded_at
           FROM taskledger.cursor n
          ORDER BY n.reader, n.n DESC) c
     CROSS JOIN LATERAL ( SELECT v.is_local,
                CASE
                    WHEN (c.reader <> ALL (ARRAY['seal'::text, 'line'::text])) THEN c.audited
                    ELSE NULL::pg_snapshot
                END AS audited
           FROM taskledger.cursors v
          WHERE ((v.reader = c.reader) AND (v.n = c.n))) w);

COMMENT ON VIEW taskledger_internal.feed_holds IS 'The events that each reader of the feed has read and audited, as feed_passed takes them; those that it has read (read, read_until); whether it may miss older events, and whether it needs only events with an order key.';

CREATE VIEW taskledger_internal.floors AS
 SELECT f."position",
    f.is_local,
    f.raised_at,
        CASE
            WHEN (EXISTS ( SELECT
               FROM ( SELECT e.xmin
                       FROM taskledger.event e
                      WHERE ((e.xid = pg_current_xact_id_if_assigned()) AND (e."position" > f."position"))
                      ORDER BY e."position"
                     LIMIT 1) first
              WHERE (age(first.xmin) > 0))) THEN taskledger_internal.restored_until()
            ELSE f."position"
        END AS foreign_until
   FROM ( SELECT l."position",
            l.raised_at,
            ((((l.xmin)::text)::bigint = ((((l.xid)::text)::numeric % ('4294967296'::bigint)::numeric))::bigint) OR (l.origin = taskledger_internal.origin())) AS is_local
           FROM taskledger.floor l
          WHERE l.one) f;

COMMENT ON VIEW taskledger_internal.floors IS 'The floor, and when the last rebase raised it (null: never). If is_local is false, it belongs to another database, as after a restore until the rebase. foreign_until is the last position at which an event with the transaction''s id may be of another database.';

CREATE VIEW taskledger_internal.key_lives AS
 SELECT l.kind,
    l.keep,
    l.actor,
    l.updated_at
   FROM taskledger.key_life l;

COMMENT ON VIEW taskledger_internal.key_lives IS 'The kinds whose archived keys are forgotten, and after which time. Keys of other kinds stay known forever.';

CREATE VIEW taskledger_internal.limited_kinds AS
 SELECT k.kind,
    k.name,
    k.weight,
    (l.max_running IS NOT NULL) AS has_permits,
    ((l.rate IS NULL) AND (l.per IS NULL)) AS is_plain
   FROM (taskledger.limited_kind k
     JOIN taskledger.start_limit l ON ((l.name = k.name)));

COMMENT ON VIEW taskledger_internal.limited_kinds IS 'The kinds with limits of starts, and the names of these limits. has_permits: the limit is for how many tasks run at a time, or for this too. is_plain: it has one count and no rate.';

CREATE VIEW taskledger_internal.lingering_place AS
 SELECT (c.mark -> 'listed'::text) AS place
   FROM ( SELECT n.mark,
            n.is_local
           FROM taskledger.cursors n
          WHERE (n.reader = 'projector'::text)
          ORDER BY n.n DESC
         LIMIT 1) c
  WHERE c.is_local;

COMMENT ON VIEW taskledger_internal.lingering_place IS 'The place of the feed up to which lingering_tasks is complete (JSON); no row or null: none.';

CREATE VIEW taskledger_internal.lingering_is_current AS
 SELECT (EXISTS ( SELECT
           FROM taskledger_internal.lingering_place p
          WHERE ((((p.place -> 'seen'::text) ->> 'top'::text))::bigint > 0))) AS is_current;

COMMENT ON VIEW taskledger_internal.lingering_is_current IS 'Whether lingering_tasks follows the projector by seconds: otherwise it is absent, of another database, or is being made.';

CREATE VIEW taskledger_internal.lingering_tasks AS
 SELECT t.enqueued_at,
    t.kind,
    t.biz_id,
    t.shard,
    t.state,
    t.version,
    t.updated_at,
    t.lingering AS "position",
    t.priority,
    t.partition
   FROM taskledger.task t
  WHERE (t.lingering IS NOT NULL);

COMMENT ON VIEW taskledger_internal.lingering_tasks IS 'The available and running tasks that became available up to lingering_place, in the order of the index (enqueued_at, kind, biz_id). position: of the event that made the task available; an index of (kind, priority, partition, position) gives the order in which the tasks of a kind, a priority and a partition begin.';

CREATE VIEW taskledger_internal.parked_events AS
 SELECT p."position",
    p.kind,
    p.biz_id,
    p.version,
    p.reason,
    p.parked_at
   FROM taskledger.parked p
  WHERE (NOT p.discarded);

COMMENT ON VIEW taskledger_internal.parked_events IS 'The events that the relay could not publish, except discarded ones.';

CREATE VIEW taskledger_internal.partition_weights AS
 SELECT w.partition,
    w.weight,
    w.actor,
    w.updated_at
   FROM taskledger.partition_weight w;

COMMENT ON VIEW taskledger_internal.partition_weights IS 'The partitions with a weight other than the default of 1.';

CREATE VIEW taskledger_internal.relay_lease AS
 SELECT l.holder,
    l.since,
    l.alive_until,
    (l.alive_until > clock_timestamp()) AS is_alive,
    (l.detail ->> 'note'::text) AS note,
    (l.detail ->> 'cause'::text) AS note_cause,
    ((l.detail ->> 'since'::text))::timestamp with time zone AS note_since,
    COALESCE(((l.detail ->> 'refused'::text))::boolean, false) AS is_refusing,
    (l.alive_until > (clock_timestamp() + l.term)) AS is_ahead,
    COALESCE(l.backend, 0) AS backend,
    ((l.backend IS NOT NULL) AND (NOT pg_is_in_recovery()) AND (NOT (EXISTS ( SELECT
           FROM pg_stat_activity a
          WHERE (a.pid = l.backend))))) AS is_gone
   FROM taskledger.lease l
  WHERE (l.name = 'relay'::text);

COMMENT ON VIEW taskledger_internal.relay_lease IS 'The last holder of the relay''s lease. note is why it cannot work, since note_since; note_cause is ''store'' if JetStream stores no message, ''off'' if no relay is expected to run. is_refusing: it waits for an operator. is_ahead: the lease was taken before the clock was set back, and not renewed since. is_gone: the server process backend of the holder''s connection has ended; a live holder reconnects at once.';

CREATE VIEW taskledger_internal.relay_mark AS
 SELECT c.n,
    c.seen,
    c.recorded_at,
    c.timeline,
    GREATEST(c.seen_top, c.after_position) AS top,
    ((c.mark ->> 'generation'::text))::bigint AS generation,
    (c.mark ->> 'stream_created'::text) AS stream_created,
    ((c.mark ->> 'stream_seq'::text))::bigint AS stream_seq,
    ((c.mark ->> 'stream_tail'::text))::bigint AS stream_tail,
    (c.mark ->> 'server'::text) AS server,
    ((c.mark ->> 'max_age_ms'::text))::bigint AS max_age_ms
   FROM taskledger.cursors c
  WHERE (c.reader = 'relay'::text);

COMMENT ON VIEW taskledger_internal.relay_mark IS 'The events that the relay had published when it wrote each row of its cursor: none above position top, and all visible in seen, up to message stream_seq of the stream created at stream_created. Messages of later events are behind stream_tail. generation is the number of losses of the stream plus 1. Before the first session, generation, stream_created and both sequences are null. max_age_ms is how long the stream keeps messages, 0 forever. server is the server_run() in which the relay has made sure that no other copy of the database works.';

CREATE VIEW taskledger_internal.worker_kinds AS
 SELECT l.holder AS worker,
    k.kind
   FROM (taskledger.lease l
     CROSS JOIN LATERAL unnest(taskledger_internal.lease_kinds(l.detail)) k(kind))
  WHERE ((l.name ~~ 'worker/%'::text) AND (l.alive_until > clock_timestamp()) AND (strpos((l.detail)::text, '"is_session":true'::text) = 0));

COMMENT ON VIEW taskledger_internal.worker_kinds IS 'The kinds that each live worker handles.';

ALTER TABLE ONLY taskledger.archive_batch
    ADD CONSTRAINT archive_batch_pkey PRIMARY KEY (id);

ALTER TABLE ONLY taskledger.archive_run
    ADD CONSTRAINT archive_run_pkey PRIMARY KEY (id);

ALTER TABLE ONLY taskledger.archive_setting
    ADD CONSTRAINT archive_setting_pkey PRIMARY KEY (kind);

ALTER TABLE ONLY taskledger.archived_key
    ADD CONSTRAINT archived_key_pkey PRIMARY KEY (hash);

ALTER TABLE ONLY taskledger.broker_user
    ADD CONSTRAINT broker_user_pkey PRIMARY KEY (name);

ALTER TABLE ONLY taskledger.cursor
    ADD CONSTRAINT cursor_pkey PRIMARY KEY (reader, n);

ALTER TABLE ONLY taskledger.erasure
    ADD CONSTRAINT erasure_pkey PRIMARY KEY (kind, biz_id, id);

ALTER TABLE ONLY taskledger.event
    ADD CONSTRAINT event_pkey PRIMARY KEY (kind, biz_id, version);

ALTER TABLE ONLY taskledger.event
    ADD CONSTRAINT event_position_key UNIQUE ("position");

ALTER TABLE ONLY taskledger.floor
    ADD CONSTRAINT floor_pkey PRIMARY KEY (one);

ALTER TABLE ONLY taskledger.illegal_event
    ADD CONSTRAINT illegal_event_pkey PRIMARY KEY (kind, biz_id, version);

ALTER TABLE ONLY taskledger.incarnation
    ADD CONSTRAINT incarnation_pkey PRIMARY KEY (one);

ALTER TABLE ONLY taskledger.key_life
    ADD CONSTRAINT key_life_pkey PRIMARY KEY (kind);

ALTER TABLE ONLY taskledger.kind_limit
    ADD CONSTRAINT kind_limit_pkey PRIMARY KEY (kind);

ALTER TABLE ONLY taskledger.lease
    ADD CONSTRAINT lease_pkey PRIMARY KEY (name);

ALTER TABLE ONLY taskledger.limited_kind
    ADD CONSTRAINT limited_kind_pkey PRIMARY KEY (kind, name);

ALTER TABLE ONLY taskledger.login
    ADD CONSTRAINT login_pkey PRIMARY KEY (id);

ALTER TABLE ONLY taskledger.moment
    ADD CONSTRAINT moment_pkey PRIMARY KEY (at);

ALTER TABLE ONLY taskledger.mortal_key
    ADD CONSTRAINT mortal_key_pkey PRIMARY KEY (batch, hash);

ALTER TABLE ONLY taskledger.mutex
    ADD CONSTRAINT mutex_pkey PRIMARY KEY (name);

ALTER TABLE ONLY taskledger.over_limit
    ADD CONSTRAINT over_limit_pkey PRIMARY KEY (kind, biz_id, version);

ALTER TABLE ONLY taskledger.parked
    ADD CONSTRAINT parked_pkey PRIMARY KEY ("position");

ALTER TABLE ONLY taskledger.partition_weight
    ADD CONSTRAINT partition_weight_pkey PRIMARY KEY (partition);

ALTER TABLE ONLY taskledger.pause
    ADD CONSTRAINT pause_pkey PRIMARY KEY (kind);

ALTER TABLE ONLY taskledger.permit
    ADD CONSTRAINT permit_pkey PRIMARY KEY (name, value, slot, n);

ALTER TABLE ONLY taskledger.remote_session
    ADD CONSTRAINT remote_session_pkey PRIMARY KEY (name);

ALTER TABLE ONLY taskledger.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (name);

ALTER TABLE ONLY taskledger.seal_cut
    ADD CONSTRAINT seal_cut_pkey PRIMARY KEY (batch);

ALTER TABLE ONLY taskledger.seal
    ADD CONSTRAINT seal_first_leaf_key UNIQUE (first_leaf);

ALTER TABLE ONLY taskledger.seal
    ADD CONSTRAINT seal_pkey PRIMARY KEY (batch);

ALTER TABLE ONLY taskledger.seal_rest
    ADD CONSTRAINT seal_rest_leaf_key UNIQUE (leaf);

ALTER TABLE ONLY taskledger.seal_rest
    ADD CONSTRAINT seal_rest_pkey PRIMARY KEY ("position");

ALTER TABLE ONLY taskledger.setting
    ADD CONSTRAINT setting_pkey PRIMARY KEY (name);

ALTER TABLE ONLY taskledger.start_limit_change
    ADD CONSTRAINT start_limit_change_pkey PRIMARY KEY (is_row);

ALTER TABLE ONLY taskledger.start_limit
    ADD CONSTRAINT start_limit_pkey PRIMARY KEY (name);

ALTER TABLE ONLY taskledger.start_token
    ADD CONSTRAINT start_token_pkey PRIMARY KEY (ring, value, n);

ALTER TABLE ONLY taskledger.subscriber_parked
    ADD CONSTRAINT subscriber_parked_pkey PRIMARY KEY (reader, kind, biz_id, version);

ALTER TABLE ONLY taskledger.subscriber_state
    ADD CONSTRAINT subscriber_state_pkey PRIMARY KEY (reader);

ALTER TABLE ONLY taskledger.task_count
    ADD CONSTRAINT task_count_pkey PRIMARY KEY (kind, state, n);

ALTER TABLE ONLY taskledger.task
    ADD CONSTRAINT task_pkey PRIMARY KEY (kind, biz_id);

ALTER TABLE ONLY taskledger.task_tag
    ADD CONSTRAINT task_tag_pkey PRIMARY KEY (tag, "position");

ALTER TABLE ONLY taskledger.timer
    ADD CONSTRAINT timer_pkey PRIMARY KEY (due_at, kind, biz_id, version, reason);

ALTER TABLE ONLY taskledger.token
    ADD CONSTRAINT token_pkey PRIMARY KEY (id);

CREATE INDEX archive_batch_last_xid ON taskledger.archive_batch USING btree (last_xid);

CREATE INDEX archive_batch_total ON taskledger.archive_batch USING btree (kind, state, id);

CREATE INDEX archive_batch_xid ON taskledger.archive_batch USING btree (xid);

CREATE INDEX archive_gap_reader ON taskledger.archive_gap USING btree (reader, first_position);

CREATE INDEX erasure_id ON taskledger.erasure USING btree (id);

CREATE INDEX erasure_last_at ON taskledger.erasure USING btree (last_at) WHERE (last_at IS NOT NULL);

CREATE INDEX event_line ON taskledger.event USING btree (order_key, "position") WHERE (type = 'lined_up'::taskledger.event_type);

CREATE INDEX event_line_dead ON taskledger.event USING btree ("position") WHERE ((order_key IS NOT NULL) AND (type = 'buried'::taskledger.event_type));

CREATE INDEX event_line_scheduled ON taskledger.event USING btree (order_key, "position") WHERE ((order_key IS NOT NULL) AND (type = 'scheduled'::taskledger.event_type));

CREATE INDEX event_line_xid ON taskledger.event USING btree (xid, order_key, "position") WHERE (type = 'lined_up'::taskledger.event_type);

CREATE INDEX event_long ON taskledger.event USING btree (kind, biz_id, type, version) WHERE (version > 64);

CREATE INDEX event_run ON taskledger.event USING btree (kind, biz_id, version) WHERE (run IS NOT NULL);

CREATE INDEX event_short_snooze ON taskledger.event USING btree ("position") WHERE ((type = 'snoozed'::taskledger.event_type) AND (strpos((data)::text, '"short_in_a_row"'::text) > 0));

CREATE INDEX event_turn ON taskledger.event USING btree (order_key, "position") WHERE ((order_key IS NOT NULL) AND (type = 'released'::taskledger.event_type) AND starts_with((data)::text, '{"reason":"turn"'::text));

CREATE INDEX event_xid_position ON taskledger.event USING btree (xid, "position");

CREATE UNIQUE INDEX fence_key_once ON taskledger.fence_key USING btree ((true));

CREATE INDEX kind_hour_hour ON taskledger.kind_hour USING btree (hour, kind);

CREATE INDEX kind_stats_minute ON taskledger.kind_stats USING btree (minute, kind);

CREATE INDEX kind_stats_position ON taskledger.kind_stats USING btree (last_position, minute) WHERE (last_position IS NOT NULL);

CREATE INDEX limited_kind_name ON taskledger.limited_kind USING btree (name);

CREATE INDEX login_name ON taskledger.login USING btree (name, id);

CREATE INDEX parked_waiting ON taskledger.parked USING btree ("position") WHERE (NOT discarded);

CREATE UNIQUE INDEX permit_attempt ON taskledger.permit USING btree (biz_id, version, kind, name) WHERE (value = ''::text);

CREATE INDEX seal_late ON taskledger.seal USING gin (positions) WITH (fastupdate=off) WHERE is_late;

CREATE UNIQUE INDEX seal_top ON taskledger.seal USING btree (top) WHERE (NOT is_late);

CREATE INDEX task_aside ON taskledger.task USING btree (aside, kind, biz_id) WHERE (aside IS NOT NULL);

CREATE INDEX task_cause ON taskledger.task USING btree (cause, kind, biz_id) WHERE (cause IS NOT NULL);

CREATE INDEX task_dead ON taskledger.task USING btree (fingerprint, kind, biz_id) WHERE (fingerprint IS NOT NULL);

CREATE INDEX task_lingering ON taskledger.task USING btree (enqueued_at, kind, biz_id) WHERE (lingering IS NOT NULL);

CREATE INDEX task_next ON taskledger.task USING btree (kind, priority, partition, lingering) WHERE (lingering IS NOT NULL);

CREATE INDEX timer_turn ON taskledger.timer USING btree (kind, due_at) WHERE (reason <> 'after'::text);

CREATE UNIQUE INDEX token_name ON taskledger.token USING btree (name) WHERE ((hash IS NULL) AND (revoked_at IS NULL));

CREATE TRIGGER erasure_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON taskledger.erasure FOR EACH STATEMENT EXECUTE FUNCTION taskledger_internal.refuse_change();

CREATE TRIGGER event_append_only BEFORE DELETE OR UPDATE OF xid, "position", recorded_at, version, attempt, type, login_id, run, shard, data_version, priority, kind, biz_id, order_key, partition OR TRUNCATE ON taskledger.event FOR EACH STATEMENT EXECUTE FUNCTION taskledger_internal.refuse_event_change();

CREATE TRIGGER event_erasure BEFORE UPDATE ON taskledger.event FOR EACH ROW EXECUTE FUNCTION taskledger_internal.check_erasure();

CREATE TRIGGER event_permits AFTER INSERT ON taskledger.event FOR EACH ROW WHEN ((new.type = ANY (ARRAY['started'::taskledger.event_type, 'progressed'::taskledger.event_type]))) EXECUTE FUNCTION taskledger_internal.take_permits();

CREATE TRIGGER kind_limit_noted BEFORE INSERT ON taskledger.kind_limit FOR EACH ROW EXECUTE FUNCTION taskledger_internal.note_limit();

ALTER TABLE taskledger.kind_limit ENABLE ALWAYS TRIGGER kind_limit_noted;

CREATE CONSTRAINT TRIGGER over_limit_kept AFTER INSERT ON taskledger.over_limit DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION taskledger_internal.keep_limit();

CREATE TRIGGER seal_append_only BEFORE DELETE OR UPDATE OF batch, first_leaf, first_node, top, is_late, positions, leaves, nodes, sealed_at OR TRUNCATE ON taskledger.seal FOR EACH STATEMENT EXECUTE FUNCTION taskledger_internal.refuse_seal_change();

ALTER TABLE ONLY taskledger.limited_kind
    ADD CONSTRAINT limited_kind_name_fkey FOREIGN KEY (name) REFERENCES taskledger.start_limit(name) ON DELETE CASCADE;

ALTER TABLE taskledger.broker_user ENABLE ROW LEVEL SECURITY;

ALTER TABLE taskledger.cursor ENABLE ROW LEVEL SECURITY;

ALTER TABLE taskledger.event ENABLE ROW LEVEL SECURITY;

CREATE POLICY form ON taskledger.lease AS RESTRICTIVE FOR INSERT WITH CHECK (taskledger_internal.is_lease(name, holder, since, alive_until, term, detail));

CREATE POLICY form_of_update ON taskledger.lease AS RESTRICTIVE FOR UPDATE USING (true) WITH CHECK (taskledger_internal.is_lease(name, holder, since, alive_until, term, detail));

ALTER TABLE taskledger.lease ENABLE ROW LEVEL SECURITY;

CREATE POLICY limits ON taskledger.event AS RESTRICTIVE FOR INSERT WITH CHECK (((type > 'lined_up'::taskledger.event_type) OR (version IS NULL) OR (pg_sequence_last_value('taskledger.limits_set'::regclass) IS NULL) OR (NOT taskledger_internal.exceeds_limit(kind, biz_id, version, type, run)) OR taskledger_internal.may_exceed_limit(kind, biz_id, version, type)));

CREATE POLICY login ON taskledger.event AS RESTRICTIVE FOR INSERT WITH CHECK ((login_id = ANY (( SELECT taskledger_internal.own_logins() AS own_logins)::integer[])));

ALTER TABLE taskledger.mutex ENABLE ROW LEVEL SECURITY;

CREATE POLICY readable ON taskledger.cursor FOR SELECT USING (true);

CREATE POLICY readable ON taskledger.lease FOR SELECT USING (true);

CREATE POLICY readable ON taskledger.timer FOR SELECT USING (true);

CREATE POLICY size ON taskledger.event AS RESTRICTIVE FOR INSERT WITH CHECK (((COALESCE(octet_length(actor), 0) <= 255) AND ((order_key IS NULL) OR (type <> 'released'::taskledger.event_type) OR (data IS NULL) OR (NOT starts_with((data)::text, '{"reason":"turn"'::text))) AND
CASE
    WHEN ((COALESCE(octet_length((data)::text), 0) <= 4096) AND (COALESCE(octet_length((meta)::text), 0) <= 4096)) THEN true
    WHEN (version IS NULL) THEN true
    WHEN (version > 1) THEN ((COALESCE(octet_length((data)::text), 0) <= 524288) AND (COALESCE(octet_length((meta)::text), 0) <= 65536))
    ELSE taskledger_internal.admits(NULL::text, octet_length((data)::text), (octet_length((meta)::text) - 256))
END));

ALTER TABLE taskledger.timer ENABLE ROW LEVEL SECURITY;
