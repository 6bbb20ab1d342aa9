-- Timers: delayed tasks, retries, deadlines.
-- Owner: package ledger.
--
--   timer  written and read by ledger
--
-- The scheduler reads the view timers, and calls fire_timers.

-- +goose Up

-- reason selects the event that the scheduler appends: due (after scheduled and snoozed) and retry append
-- released; start_by and finish_by append expired.
-- due and retry belong to the event that set the timer (version): another event of the task ends their effect.
-- start_by and finish_by belong to the args, in the event of the timer's version: another run, or new args, ends
-- their effect. after marks a task that waits for its predecessors. It is never due: the
-- scheduler reads the row until the task has another event. The transaction that appends the event writes the row, and
-- the event contains the time, too: this table can be rebuilt from the events.
--
-- No row is inserted with a due_at below the database's clock at the insert, read after the inserting
-- transaction has got its xid: the scheduler's marks rest on it. Most rows leave at the low end of the index,
-- and their entries stay there while another transaction holds an old snapshot.
create table taskledger.timer (
  due_at  timestamptz not null,
  kind    text collate "C" not null,
  biz_id  text collate "C" not null,
  version integer not null,
  reason  text collate "C" not null check (reason in ('due', 'retry', 'start_by', 'finish_by', 'after')),
  primary key (due_at, kind, biz_id, version, reason))
  with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- The scheduler gives each kind its turn by it when more timers are due than fit into a batch.
create index timer_turn on taskledger.timer (kind, due_at) where reason <> 'after';

comment on table taskledger.timer is
  'One row for each event that the scheduler will append at due_at: a task''s release or expiry.';

create view taskledger.timers as
select t.due_at, t.kind, t.biz_id, t.version, t.reason from taskledger.timer t;

comment on view taskledger.timers is
  'The timers of all tasks: when each is due, and its reason: due, retry, start_by, finish_by, or after (never '
  'due).';

-- The latest moment that a timer may have. Times of tasks are before it: the scheduler reads all timers at it.
-- +goose StatementBegin
create function taskledger_internal.end_of_time() returns timestamptz
language sql immutable parallel safe
return timestamptz '9998-12-31 23:59:59.999999+00';
-- +goose StatementEnd

comment on function taskledger_internal.end_of_time() is
  'Returns when the timers of tasks with predecessors are due, which is never.';

-- +goose StatementBegin
create function taskledger_internal.due_at(after_us bigint, at timestamptz) returns timestamptz
language sql volatile
return case
  when at is not null then greatest(at, clock_timestamp())
  when after_us is not null then clock_timestamp() + after_us * interval '1 microsecond'
end;
-- +goose StatementEnd

comment on function taskledger_internal.due_at(bigint, timestamptz) is
  'Returns the moment at, or else the moment after_us microseconds from now, never before now, '
  'by the database''s clock.';

-- The other members stay as they are, byte for byte.
-- +goose StatementBegin
create function taskledger_internal.with_moment(object text, name text, moment timestamptz) returns text
language sql immutable parallel safe
return case when moment is null then object
  else '{"' || name || '":"' || to_char(moment at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '"'
    || case when coalesce(object, '{}') ~ '^[[:space:]]*[{][[:space:]]*[}][[:space:]]*$' then '}'
            else ',' || regexp_replace(object, '^[[:space:]]*[{]', '') end
end;
-- +goose StatementEnd

comment on function taskledger_internal.with_moment(text, text, timestamptz) is
  'Returns a JSON object (null: an empty one) with a first member added: '
  'a moment as RFC 3339 in UTC to the microsecond. A null moment adds none.';

-- +goose StatementBegin
create function taskledger_internal.with_times(meta text, run_at timestamptz, start_by timestamptz,
                                               finish_by timestamptz)
returns text
language sql immutable parallel safe
return taskledger_internal.with_moment(taskledger_internal.with_moment(taskledger_internal.with_moment(
  meta, 'finish_by', finish_by), 'start_by', start_by), 'run_at', run_at);
-- +goose StatementEnd

comment on function taskledger_internal.with_times(text, timestamptz, timestamptz, timestamptz) is
  'Returns the meta of a task''s first event with its times added.';

-- +goose StatementBegin
create function taskledger_internal.times_of(entry json, out run_at timestamptz, out run_in interval,
                                             out start_by timestamptz, out finish_by timestamptz)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.times_of(json) is
  'Returns the times of an entry of taskledger.enqueue_many; raises an error for an invalid one, by name.';

-- Appends the events of due timers and removes the timers, or does neither.
--
-- released is appended if the event that set the timer is the task's last one, or lined_up if the task has an order key
-- and was scheduled: it takes its place in line. A deadline concerns the run: start_by expires a waiting task that has
-- not begun, finish_by any waiting task. If both events fit a task, it expires. If a task is running at its finish_by,
-- the timer is due again in a second. Every other timer is removed without an event.
--
-- A task whose key was archived is discarded by any timer: see 00023_archive.sql.
--
-- A deadline whose task gets another event at the same time is kept: the next batch reads the new head.
--
-- Locks the timers, skipping locked ones; waits for concurrent appends to the tasks, in the order of the keys.
-- The clock is read before the transaction ID is drawn. It runs with its owner's rights, so that the scheduler needs
-- none on event and timer.
--
-- Index: primary keys. The planner may use neither sequential nor bitmap scans, because the table is empty at one
-- moment and holds millions of rows at another, which makes its statistics misleading. Joins are not nested loops if
-- possible: a batch that the generic plan estimates at a few rows was joined with itself row by row. Without jit: see
-- feed_page.
-- +goose StatementBegin
create function taskledger_internal.fire_timers(due_from timestamptz, how_many integer,
                                                may_release taskledger.event_type[], may_expire taskledger.event_type[],
                                                except_keys text[], only_due timestamptz[], only_kinds text[],
                                                only_biz_ids text[])
returns table (clock timestamptz, timers bigint, released bigint, expired bigint, kept bigint, elsewhere bigint,
               first_due_at timestamptz, last_due_at timestamptz)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set enable_bitmapscan = off set enable_seqscan = off set enable_nestloop = off
set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.fire_timers(timestamptz, integer, taskledger.event_type[],
                                                    taskledger.event_type[], text[], timestamptz[], text[], text[]) is
  'Appends the events of at most how_many timers due since due_from, and removes the timers. may_release and '
  'may_expire: the types of events that released and expired may follow. except_keys: keys (kind/biz_id) to leave out. '
  'only_due, only_kinds and only_biz_ids, of one length: the only timers, instead; empty for all. Returns the clock '
  'that decided, the numbers of timers locked, of released and expired events, and of timers kept; how many of the '
  'only timers another session has locked; due_at of the first and the last timer locked.';

-- Index: primary keys.
-- +goose StatementBegin
create function taskledger_internal.remove_awaiting(kinds text[], biz_ids text[]) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
  delete from taskledger.timer t
   using unnest(remove_awaiting.kinds, remove_awaiting.biz_ids) k(kind, biz_id)
   where t.due_at = taskledger_internal.end_of_time() and t.kind = k.kind and t.biz_id = k.biz_id
     and t.reason = 'after'
     and exists (
       select from taskledger.event e
        where e.kind = k.kind and e.biz_id = k.biz_id and e.version > t.version);
end;
-- +goose StatementEnd

comment on function taskledger_internal.remove_awaiting(text[], text[]) is
  'Removes the timers of tasks with predecessors that were followed by another event of the task.';

-- Without it, the timer of a cancelled task would stay until its time, and a deadline's timer long after the success. A
-- timer is obsolete if no later event can give it an effect: versions grow, and so do attempts in a run, which
-- succeeded ends for good. A task in another finished state may be released, with its deadlines.
--
-- Locks only the timers that it removes. Index: primary keys; see fire_timers for the settings.
-- +goose StatementBegin
create function taskledger_internal.remove_obsolete_timers(due_from timestamptz, after_kind text, after_biz_id text,
                                                           how_many integer)
returns table (timers bigint, removed bigint, last_due_at timestamptz, last_kind text, last_biz_id text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set enable_bitmapscan = off set enable_seqscan = off set enable_nestloop = off
set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.remove_obsolete_timers(timestamptz, text, text, integer) is
  'Reads the next how_many timers that are not due, after a moment, a kind and a biz_id, and removes '
  'timers without an effect because their task has moved on. Returns how many it has read and removed, and the '
  'place of the last timer.';
