-- Lines: tasks with the same order key begin one after another.
-- Owner: package ledger. No tables: a line is the events lined_up and released of its tasks.
--
-- The dispatcher calls advance_lines; other packages call line_before and stopped_lines.
--
-- A task enters its line with the event lined_up. Its turn begins with the event released and the reason turn: only
-- advance_lines appends that event, and no other event makes a task in line available. So no dispatcher or worker can
-- start a task before its turn, and the newest turn of an order key names the task whose turn it is. The turn lasts
-- until the task has ended, lines up again, or is scheduled by an operator. A task that waits for a retry or after a
-- snooze keeps its turn; so does a dead task, unless it was enqueued with pass_if_dead.
--
-- Of the lined_up events that are still their tasks' last events, the lowest position belongs to the next task. So A
-- comes before B if A committed before B's transaction began, or if both wait and A's position is lower.
--
-- The search costs the same however long the line and its history are. The data of a turn contain two results of its
-- search: the place, which is the position of the lowest lined_up event at that time, and the snapshot seen. Every
-- lined_up event that seen contains and that is not above the place had had its turn. So the next search reads the
-- events above the place, and the events of transactions that seen does not contain: unfinished in seen, or begun
-- before bound, an xid drawn after the snapshot. (A transaction draws its xid before its first position, so
-- transactions from bound on have only positions above the place.) A late task moves the place back, and the next
-- search skips the tasks in between once. As data, these numbers stay valid in a restored dump and in a clone.

-- +goose Up

-- +goose StatementBegin
create function taskledger_internal.check_order_key(order_key text, pass_if_dead boolean) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.check_order_key(text, boolean) is
  'Raises an error for an order key that package ledger rejects.';

-- +goose StatementBegin
create function taskledger_internal.with_pass_if_dead(meta text, pass_if_dead boolean) returns text
language sql immutable parallel safe
return case when not coalesce(pass_if_dead, false) then meta
  else '{"pass_if_dead":true'
    || case when coalesce(meta, '{}') ~ '^[[:space:]]*[{][[:space:]]*[}][[:space:]]*$' then '}'
            else ',' || regexp_replace(meta, '^[[:space:]]*[{]', '') end
end;
-- +goose StatementEnd

comment on function taskledger_internal.with_pass_if_dead(text, boolean) is
  'Returns the meta of an event with args, with the member pass_if_dead added if it is set.';

-- Producers can write any JSON.
-- +goose StatementBegin
create function taskledger_internal.passes_if_dead(meta json) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  return coalesce(strpos(meta::text, '"pass_if_dead"') > 0 and meta ->> 'pass_if_dead' = 'true', false);
exception when data_exception then
  return false;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.passes_if_dead(json) is
  'Returns whether the next task in line begins if a task with this meta is dead.';

-- A task whose turn it is does not line up for a retry. The planner inlines this expression, and omits it for a type
-- that is a constant other than released.
create function taskledger_internal.type_in_line(type taskledger.event_type, last taskledger.event_type, order_key text)
returns taskledger.event_type
language sql immutable parallel safe
return case when type = 'released' and order_key is not null
                 and last in ('scheduled', 'buried', 'cancelled', 'expired', 'discarded')
            then 'lined_up'::taskledger.event_type else type end;

comment on function taskledger_internal.type_in_line(taskledger.event_type, taskledger.event_type, text) is
  'Returns the type of an event of a task with this order key after one of type last: lined_up in place of released, '
  'if the task must line up.';

-- The newest turn of each line, whether the line is held by that task, and where the search for the next task begins.
-- Indexes: event_turn, primary key, event_run.
-- +goose StatementBegin
create function taskledger_internal.line_turns(order_keys text[])
returns table (order_key text, kind text, biz_id text, head integer, type taskledger.event_type, attempt integer,
               shard smallint, priority smallint, partition text, is_held boolean, resumes boolean, place bigint,
               seen text, bound text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.line_turns(text[]) is
  'Returns, for each order key, the task that had the newest turn (null: none) with its last event, whether it still '
  'is its turn, whether it was dead in its turn and has been released, and where the search for the next task begins.';

-- Gives the next task of each line its turn, if the line is free.
--
-- The lock makes concurrent callers take turns: each sees the turns of the caller before. It is taken on a table that
-- no other role may lock. It draws no xid, so that the xid that is drawn with the search is newer than its snapshot.
--
-- It waits for concurrent appends to the tasks, for at most the lock_timeout of the caller.
-- Indexes: event_turn, event_line, event_line_xid, primary key. Planned as feed_page is.
-- +goose StatementBegin
create function taskledger_internal.advance_lines(order_keys text[])
returns table (kind text, biz_id text, version integer, "position" bigint, recorded_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.advance_lines(text[]) is
  'Makes the next task of each of these lines available, unless it is another task''s turn. Returns '
  'the events of these turns. It must be the first statement of a READ COMMITTED transaction that writes.';

-- Where a task stands in its line, for display. Tasks that committed late, before the last search, are not counted:
-- they are few, and each turn searches for them.
-- Indexes: event_turn, event_line, primary key. It reads at most the given number of lined_up events.
-- +goose StatementBegin
create function taskledger_internal.line_before(order_key text, before bigint, most integer)
returns table (kind text, biz_id text, type taskledger.event_type, since timestamptz, waiting bigint, is_more boolean,
               place bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.line_before(text, bigint, integer) is
  'Returns the task of this order key whose turn it is, with the type of its last event and when its turn began or it '
  'died (null: the line is free), how many tasks wait before this position, whether they are more than most, and '
  'the place after which tasks wait.';

-- The lines that stand because of a dead task, newest first. Examines the newest 10,000 burials of tasks with order
-- keys and, if there are more, up to 10,000 tasks that the projection shows as dead. Indexes: event_line_dead,
-- event_turn, primary key, event_run; task_dead.
-- +goose StatementBegin
create function taskledger_internal.stopped_lines(most integer)
returns table (order_key text, kind text, biz_id text, since timestamptz, is_more boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.stopped_lines(integer) is
  'Returns lines that stand because the task whose turn it is is dead, with that task and since when it is dead. '
  'is_more: there may be others, because too many tasks are dead to examine all.';

revoke all on all functions in schema taskledger, taskledger_internal from public;
