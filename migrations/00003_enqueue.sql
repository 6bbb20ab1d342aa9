-- Enqueue for every language: the same answers and the same rows as the Go functions.

-- +goose Up

-- Refuses a key that Go would refuse, with the rule that it breaks.
-- +goose StatementBegin
create function taskledger.check_key(kind text, biz_id text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if kind is null or octet_length(kind) > 128 or kind !~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$' then
    raise exception 'taskledger: invalid kind %', coalesce(quote_literal(left(kind, 140)), 'null')
      using errcode = 'invalid_parameter_value',
            hint = 'a kind is 1 to 128 bytes of A-Z a-z 0-9 _ - in words joined by dots';
  end if;
  if biz_id is null or octet_length(biz_id) not between 1 and 255 or biz_id ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'taskledger: invalid biz_id %', coalesce(quote_literal(left(biz_id, 260)), 'null')
      using errcode = 'invalid_parameter_value',
            hint = 'a biz_id is 1 to 255 bytes of UTF-8 without control characters';
  end if;
end
$$;
-- +goose StatementEnd

-- Refuses an actor that Go would refuse.
-- +goose StatementBegin
create function taskledger.check_actor(actor text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if octet_length(actor) > 255 or actor ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'taskledger: invalid actor %', quote_literal(left(actor, 260))
      using errcode = 'invalid_parameter_value',
            hint = 'an actor is at most 255 bytes of UTF-8 without control characters';
  end if;
end
$$;
-- +goose StatementEnd

-- Refuses JSON that nests deeper than 512, which the workers' decoders would. text is JSON.
-- +goose StatementBegin
create function taskledger.check_nesting(name text, text text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  brackets text;
begin
  if coalesce(octet_length(text), 0) <= 1024 then
    return; -- one level takes two bytes
  end if;
  brackets := regexp_replace(text, '"(?:[^"\\]|\\.)*"', '', 'g');
  brackets := translate(regexp_replace(brackets, '[^][{}]', '', 'g'), '{}', '[]');
  for i in 1..512 loop
    exit when brackets = '';
    brackets := replace(brackets, '[]', ''); -- one level less
  end loop;
  if brackets <> '' then
    raise exception 'taskledger: invalid %: it nests more than 512 deep', name using errcode = 'invalid_parameter_value';
  end if;
end
$$;
-- +goose StatementEnd

-- Refuses a meta that Go could not read, and args that are not what their meta says.
-- +goose StatementBegin
create function taskledger.check_meta(meta json, args json) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if meta is null or json_typeof(meta) = 'null' then
    return;
  end if;
  if json_typeof(meta) <> 'object' then
    raise exception 'taskledger: invalid meta: it must be a JSON object, not %', json_typeof(meta)
      using errcode = 'invalid_parameter_value';
  end if;
  declare
    member record;
  begin
    for member in -- of two of a name the last counts
      select distinct on (m.key) m.key, m.value, json_typeof(m.value) as type
        from json_each(meta) with ordinality as m(key, value, i)
       order by m.key, m.i desc
    loop
      if member.key in ('traceparent', 'tracestate', 'causation', 'encoding', 'retry') and member.type not in ('string', 'null') then
        raise exception 'taskledger: invalid meta: % must be a string, not %', member.key, member.type
          using errcode = 'invalid_parameter_value';
      elsif member.key in ('run_at', 'start_by', 'finish_by') then
        raise exception 'taskledger: invalid meta: % is an argument of its own', member.key using errcode = 'invalid_parameter_value';
      elsif member.key = 'tags' and (member.type not in ('array', 'null') or member.type = 'array' and
          exists (select from json_array_elements(member.value) t where json_typeof(t) not in ('string', 'null'))) then
        raise exception 'taskledger: invalid meta: tags must be an array of strings' using errcode = 'invalid_parameter_value';
      end if;
    end loop;
    if coalesce(meta->>'encoding', '') not in ('', 'base64') then
      raise exception 'taskledger: invalid meta: unknown encoding %', quote_literal(left(meta->>'encoding', 80))
        using errcode = 'invalid_parameter_value', hint = 'base64, or none for JSON';
    end if;
    if meta->>'encoding' = 'base64' and json_typeof(args) <> 'null' and (json_typeof(args) <> 'string' or
        translate(args #>> '{}', E'\r\n', '') !~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$') then
      raise exception 'taskledger: invalid args: they must be a string of base64, as meta says' using errcode = 'invalid_parameter_value';
    end if;
  exception when untranslatable_character or invalid_text_representation then
    -- Escapes that PostgreSQL stores but cannot look into: nobody's query could get past this event.
    raise exception 'taskledger: invalid meta or args: %', sqlerrm using errcode = 'invalid_parameter_value';
  end;
end
$$;
-- +goose StatementEnd

-- Enqueues many tasks in the caller's transaction. entries is a JSON array of objects with
-- kind, biz_id and optionally args, meta, shard, actor, run_at, run_in, start_by, finish_by: the
-- arguments of taskledger.enqueue. Answers in the order of the entries;
-- a task that exists already is answered with its state, and with whether its args are the same.
-- Args with the escape \u0000 are SQLSTATE 22P05 here (PostgreSQL cannot take such an object
-- apart); taskledger.enqueue takes them.
-- Runs with its owner's rights: a producer needs usage on the schema and nothing else.
-- +goose StatementBegin
create function taskledger.enqueue_many(entries json)
returns table (kind text, biz_id text, is_new boolean, state taskledger.task_state, version integer,
               same_args boolean, "position" bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  max_args constant integer := (select s.value::integer from taskledger.setting s where s.name = 'max_args_bytes');
  max_meta constant integer := (select s.value::integer from taskledger.setting s where s.name = 'max_meta_bytes');
  entry record;
  key text;
  one_by_one boolean := false;  -- some entry has times, or too many of its kind wait
  added_positions bigint[];
begin
  if json_typeof(entries) is distinct from 'array' then
    raise exception 'taskledger: entries must be a JSON array' using errcode = 'invalid_parameter_value';
  end if;
  for entry in
    select e.i, e.v, e.v->>'kind' as kind, e.v->>'biz_id' as biz_id, e.v->>'shard' as shard
      from json_array_elements(entries) with ordinality as e(v, i)
  loop
    perform taskledger.check_key(entry.kind, entry.biz_id);
    perform taskledger.check_actor(entry.v->>'actor');
    if octet_length((entry.v->'args')::text) > max_args then
      raise exception 'taskledger: entry %: args of % bytes are over the limit of %', entry.i, octet_length((entry.v->'args')::text), max_args
        using errcode = 'invalid_parameter_value', hint = 'store the payload elsewhere and enqueue a reference to it';
    end if;
    if octet_length((entry.v->'meta')::text) > max_meta then
      raise exception 'taskledger: entry %: meta of % bytes is over the limit of %', entry.i, octet_length((entry.v->'meta')::text), max_meta
        using errcode = 'invalid_parameter_value';
    end if;
    if entry.shard is not null and (entry.shard !~ '^[0-9]{1,2}$' or entry.shard::integer > 63) then
      raise exception 'taskledger: entry %: shard must be 0 to 63', entry.i using errcode = 'invalid_parameter_value';
    end if;
    perform taskledger.check_nesting('args', (entry.v->'args')::text);
    perform taskledger.check_nesting('meta', (entry.v->'meta')::text);
    perform taskledger.check_meta(entry.v->'meta', entry.v->'args');
    for key in select json_object_keys(entry.v) loop
      if key in ('run_at', 'run_in', 'start_by', 'finish_by') then
        perform taskledger.times_of(entry.v);
        one_by_one := true;
      elsif key not in ('kind', 'biz_id', 'args', 'meta', 'shard', 'actor') then
        raise exception 'taskledger: entry %: % is not supported', entry.i, quote_literal(left(key, 80))
          using errcode = 'feature_not_supported',
                hint = 'kind, biz_id, args, meta, shard, actor, run_at, run_in, start_by and finish_by are';
      end if;
    end loop;
  end loop;

  one_by_one := one_by_one or exists (
    select from json_array_elements(entries) e join taskledger.overload o on o.kind = e->>'kind' where o.closed);
  if one_by_one then -- in the order of the keys
    for entry in
      select e.v, e.v->>'kind' as kind, e.v->>'biz_id' as biz_id, e.v->'args' as args, e.v->'meta' as meta,
             (e.v->>'shard')::integer as shard, e.v->>'actor' as actor
        from json_array_elements(entries) with ordinality as e(v, i)
       order by e.v->>'kind' collate "C", e.v->>'biz_id' collate "C", e.i
    loop
      added_positions := added_positions || array(
        select first.position
          from taskledger.times_of(entry.v) t
         cross join lateral taskledger.enqueue(entry.kind, entry.biz_id, entry.args, t.run_at, entry.shard, entry.actor,
                                               entry.meta, t.run_in, t.start_by, t.finish_by) first
         where first.is_new);
    end loop;
  else
    with tx as materialized (
      select pg_current_xact_id() as xid
    ), added as (
      insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data, meta)
      select tx.xid, 1, 0, coalesce(w.shard, taskledger.shard_of(w.biz_id)), 'enqueued', w.kind, w.biz_id,
             coalesce(nullif(w.actor, ''), session_user::text), w.args,
             case when json_typeof(w.meta) = 'object' then w.meta end
        from tx
       cross join (
         select e.i, e.v->>'kind' as kind, e.v->>'biz_id' as biz_id, e.v->'args' as args, e.v->'meta' as meta,
                (e.v->>'shard')::smallint as shard, e.v->>'actor' as actor
           from json_array_elements(entries) with ordinality as e(v, i)) w
       order by w.kind collate "C", w.biz_id collate "C", w.i
          on conflict (kind, biz_id, version) do nothing
      returning position)
    select array_agg(a.position) into added_positions from added a;
  end if;

  -- A statement of its own: the winner of a race is visible only to a later snapshot.
  return query
  select w.kind, w.biz_id, w.nth = 1 and first.position in (select unnest(added_positions)),
         taskledger.state_after(head.type), head.version,
         first.data::text is not distinct from w.args::text, first.position
    from (
      select e.i, e.v->>'kind' as kind, e.v->>'biz_id' as biz_id, e.v->'args' as args,
             row_number() over (partition by e.v->>'kind', e.v->>'biz_id' order by e.i) as nth
        from json_array_elements(entries) with ordinality as e(v, i)) w
   cross join lateral (
      select f.position, f.data from taskledger.event f
       where f.kind = w.kind and f.biz_id = w.biz_id and f.version = 1) first
   cross join lateral (
      select h.version, h.type from taskledger.event h
       where h.kind = w.kind and h.biz_id = w.biz_id order by h.version desc limit 1) head
   order by w.i;
end
$$;
-- +goose StatementEnd

-- Enqueues one task in the caller's transaction; see taskledger.enqueue_many.
-- run_at or run_in says when it is due, by the database's clock; what is past is due now.
-- Unstarted by start_by, or unfinished by finish_by, it expires.
-- +goose StatementBegin
create function taskledger.enqueue(kind text, biz_id text, args json default null, run_at timestamptz default null,
                                   shard integer default null, actor text default null, meta json default null,
                                   run_in interval default null, start_by timestamptz default null, finish_by timestamptz default null)
returns table (is_new boolean, state taskledger.task_state, version integer, same_args boolean, "position" bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  max_args constant integer := (select s.value::integer from taskledger.setting s where s.name = 'max_args_bytes');
  max_meta constant integer := (select s.value::integer from taskledger.setting s where s.name = 'max_meta_bytes');
  timed constant boolean := num_nonnulls(run_at, run_in, start_by, finish_by) > 0;
  due timestamptz;         -- null: now
  first_type taskledger.event_type := 'enqueued';
  noted json := case when json_typeof(meta) = 'object' then meta end;
  limited record;
  discarding boolean := false;
  added_position bigint;
begin
  perform taskledger.check_key(enqueue.kind, enqueue.biz_id);
  perform taskledger.check_actor(enqueue.actor);
  if octet_length(enqueue.args::text) > max_args then
    raise exception 'taskledger: args of % bytes are over the limit of %', octet_length(enqueue.args::text), max_args
      using errcode = 'invalid_parameter_value', hint = 'store the payload elsewhere and enqueue a reference to it';
  end if;
  if octet_length(enqueue.meta::text) > max_meta then
    raise exception 'taskledger: meta of % bytes is over the limit of %', octet_length(enqueue.meta::text), max_meta
      using errcode = 'invalid_parameter_value';
  end if;
  if enqueue.shard not between 0 and 63 then
    raise exception 'taskledger: shard must be 0 to 63, not %', enqueue.shard using errcode = 'invalid_parameter_value';
  end if;
  perform taskledger.check_nesting('args', enqueue.args::text);
  perform taskledger.check_nesting('meta', enqueue.meta::text);
  perform taskledger.check_meta(enqueue.meta, enqueue.args);

  if timed then
    perform taskledger.check_times(run_at, run_in, start_by, finish_by);
    perform pg_current_xact_id();  -- before the clock is read, see the table timer
    due := case when run_in > interval '0' then clock_timestamp() + run_in
                when run_at > clock_timestamp() then run_at end;
    first_type := case when due is null then 'enqueued' else 'scheduled' end;
    noted := taskledger.with_times(noted::text, due, start_by, finish_by);
  end if;
  if due is null then
    select o.* into limited from taskledger.overload o where o.kind = enqueue.kind and o.closed;
    if limited.policy = 'discard' then
      discarding := true;
    elsif limited.policy is not null and not exists (
        select from taskledger.event e where e.kind = enqueue.kind and e.biz_id = enqueue.biz_id and e.version = 1) then
      raise exception 'taskledger: too many tasks of kind % wait: %, of at most %', enqueue.kind, limited.waiting, limited.max_waiting
        using errcode = 'configuration_limit_exceeded',
              detail = json_build_object('kind', enqueue.kind, 'waiting', limited.waiting, 'max_waiting', limited.max_waiting, 'retry_after_ms', limited.retry_after_ms, 'policy', limited.policy)::text,
              hint = 'try again after ' || limited.retry_after_ms || ' ms'
                     || case limited.policy when 'caller_runs' then ', or have it run in your transaction: workers.Caller in Go' else '' end;
    end if;
  end if;
  with tx as materialized (
    select pg_current_xact_id() as xid)
  insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data, meta)
  select tx.xid, 1, 0, coalesce(enqueue.shard::smallint, taskledger.shard_of(enqueue.biz_id)), first_type,
         enqueue.kind, enqueue.biz_id, coalesce(nullif(enqueue.actor, ''), session_user::text), enqueue.args, noted
    from tx
      on conflict (kind, biz_id, version) do nothing
  returning event.position into added_position;
  if added_position is not null and discarding then
    with tx as materialized (
      select pg_current_xact_id() as xid)
    insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data)
    select tx.xid, 2, 0, coalesce(enqueue.shard::smallint, taskledger.shard_of(enqueue.biz_id)), 'discarded',
           enqueue.kind, enqueue.biz_id, coalesce(nullif(enqueue.actor, ''), session_user::text),
           '{"reason":"too many tasks of its kind wait"}'
      from tx;
    return query select true, 'discarded'::taskledger.task_state, 2, true, added_position;
    return;
  end if;
  if added_position is not null then
    if timed then
      perform taskledger.set_timers(enqueue.kind, enqueue.biz_id, due, enqueue.start_by, enqueue.finish_by);
    end if;
    return query select true, taskledger.state_after(first_type), 1, true, added_position;
    return;
  end if;

  return query
  select false, taskledger.state_after(head.type), head.version,
         first.data::text is not distinct from enqueue.args::text, first.position
    from taskledger.event first
   cross join lateral (
      select h.version, h.type from taskledger.event h
       where h.kind = first.kind and h.biz_id = first.biz_id order by h.version desc limit 1) head
   where first.kind = enqueue.kind and first.biz_id = enqueue.biz_id and first.version = 1;
end
$$;
-- +goose StatementEnd
