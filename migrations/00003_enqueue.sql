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

-- Refuses an actor and a meta that Go would refuse.
-- +goose StatementBegin
create function taskledger.check_note(actor text, meta json) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if octet_length(actor) > 255 or actor ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'taskledger: invalid actor %', quote_literal(left(actor, 260))
      using errcode = 'invalid_parameter_value',
            hint = 'an actor is at most 255 bytes of UTF-8 without control characters';
  end if;
  if json_typeof(meta) not in ('object', 'null') then
    raise exception 'taskledger: meta must be a JSON object, not %', json_typeof(meta)
      using errcode = 'invalid_parameter_value';
  end if;
end
$$;
-- +goose StatementEnd

-- Enqueues many tasks in the caller's transaction. entries is a JSON array of objects with
-- kind, biz_id and optionally args, meta, shard, actor. Answers in the order of the entries;
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
    perform taskledger.check_note(entry.v->>'actor', entry.v->'meta');
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
    if exists (select from json_object_keys(entry.v) k where k not in ('kind', 'biz_id', 'args', 'meta', 'shard', 'actor')) then
      raise exception 'taskledger: entry %: only kind, biz_id, args, meta, shard and actor are supported', entry.i
        using errcode = 'feature_not_supported';
    end if;
  end loop;

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
-- run_at is reserved for delayed tasks and refused until they exist.
-- +goose StatementBegin
create function taskledger.enqueue(kind text, biz_id text, args json default null, run_at timestamptz default null,
                                   shard integer default null, actor text default null, meta json default null)
returns table (is_new boolean, state taskledger.task_state, version integer, same_args boolean, "position" bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  max_args constant integer := (select s.value::integer from taskledger.setting s where s.name = 'max_args_bytes');
  max_meta constant integer := (select s.value::integer from taskledger.setting s where s.name = 'max_meta_bytes');
  added_position bigint;
begin
  perform taskledger.check_key(enqueue.kind, enqueue.biz_id);
  perform taskledger.check_note(enqueue.actor, enqueue.meta);
  if enqueue.run_at is not null then
    raise exception 'taskledger: run_at is not supported by this version' using errcode = 'feature_not_supported';
  end if;
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

  with tx as materialized (
    select pg_current_xact_id() as xid)
  insert into taskledger.event (xid, version, attempt, shard, type, kind, biz_id, actor, data, meta)
  select tx.xid, 1, 0, coalesce(enqueue.shard::smallint, taskledger.shard_of(enqueue.biz_id)), 'enqueued',
         enqueue.kind, enqueue.biz_id, coalesce(nullif(enqueue.actor, ''), session_user::text), enqueue.args,
         case when json_typeof(enqueue.meta) = 'object' then enqueue.meta end
    from tx
      on conflict (kind, biz_id, version) do nothing
  returning event.position into added_position;
  if added_position is not null then
    return query select true, 'available'::taskledger.task_state, 1, true, added_position;
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
