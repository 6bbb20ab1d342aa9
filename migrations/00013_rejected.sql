-- Who was rejected is counted, in whatever language, also if what was to be enqueued is rolled back.

-- +goose Up

-- How many calls were rejected since too many tasks of a kind waited. A sequence keeps its count where
-- the transaction is rolled back, and leaves no dead rows. A crash of PostgreSQL may add up to 32,
-- which its log has as drawn, and take back what was rejected within its last second.
create sequence taskledger.rejected;

-- Counts a call that is about to be rejected. Runs with its owner's rights: who may enqueue need not
-- be granted anything to be counted.
-- +goose StatementBegin
create function taskledger.count_rejection() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform nextval('taskledger.rejected');
end
$$;
-- +goose StatementEnd

-- Enqueues one task in the caller's transaction; see taskledger.enqueue_many.
-- run_at or run_in says when it is due, by the database's clock; what is past is due now.
-- Unstarted by start_by, or unfinished by finish_by, it expires.
-- +goose StatementBegin
create or replace function taskledger.enqueue(kind text, biz_id text, args json default null, run_at timestamptz default null,
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
      perform taskledger.count_rejection();
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
