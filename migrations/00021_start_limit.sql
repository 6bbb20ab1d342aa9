-- Limits of starts: how many tasks may run at a time, and how many may start in a period, over all workers.
-- Owner: package ledger.
--
--   start_limit, limited_kind  written by set_start_limit and unset (limit --concurrency, --rate)
--   start_limits_set           drawn from by set_start_limit
--   start_limit_change         written by set_start_limit
--   permit, start_token        written by the trigger of event, by set_start_limit, remove_permits and tidy_tokens
--   partition_weight           written by ledger and unset (limit --partition --weight)
--
-- Other packages read the views limited_kinds, start_limits, permits, recent_starts, limit_use and partition_weights,
-- and call remove_permits and tidy_tokens.
--
-- A limit has a name and covers kinds; a kind's own limit is named as the kind. A limit per partition or order key
-- counts each value of that column separately, and does not apply to tasks without one. The trigger event_permits runs
-- in each statement that inserts the event started, and takes what each limit of the kind demands, in the order of
-- their names. So no program, dispatcher or role can start one task too many: the statement fails with SQLSTATE TL008.
--
-- Concurrency: a start takes a permit, which is one of the slots 1 to max_running. Only a slot's newest row, with the
-- highest n, counts. Its attempt holds the slot while it is running and its task's last attempt; an
-- ended attempt stays ended. A start locks the newest row of a free slot and skips rows that others have locked, so
-- starts do not wait for each other. If the limit has one count, the start then replaces n by n + 1 in that row. A
-- start that was suspended for hours finds another n in the row, and skips it.
-- A worker takes permits of limits with one count before a handler begins, without an event (begin_attempts). Such a
-- permit has the version that the attempt's first event will have. It is held while the task's last event is the one
-- before, for at most permit_lasts. If the start is recorded, its trigger keeps the permit, which gets the attempt's
-- number and then lasts like any other. A permit without a number is never that of a recorded start: if an attempt
-- without an event is cancelled and its task released, the next attempt has the same number. The unique index lets
-- only one permit of a limit have a version: of two workers that begin a task, one is refused.
--
-- The start of a value inserts a row n + 1. Such rows are removed oldest first, and never while a start has locked
-- them. So a start that was suspended for hours cannot insert a row n + 1 that existed before: it no longer finds
-- row n, or n + 1 still exists.
--
-- Rate: a limit has burst tokens. Each token may be used once in a window of period * burst / rate. So any window
-- contains at most burst starts and, as burst divides rate, any period at most rate starts. The tokens form a ring: row
-- n + burst is the next use of row n's token. A start takes the oldest unlocked use, if it is older than the window by
-- the database's clock. A start of weight w takes w tokens. The cost depends neither on history nor on the rate.
--
-- The slots and tokens of a limit for all tasks exist from the beginning. The slots and tokens of a value are created
-- by the first starts that need them. Their first row (slots: n = 0; tokens: n <= 0) stays for as long as the slot or
-- ring, so a start with an old snapshot cannot create them twice.

-- +goose Up

create table taskledger.start_limit (
  name        text collate "C" primary key check (name <> '' and octet_length(name) <= 128),
  per         text collate "C" check (per in ('partition', 'order_key')),
  max_running integer check (max_running between 0 and 10000),
  rate        integer check (rate between 1 and 100000000),
  period_s    integer check (period_s in (1, 60, 3600, 86400)),
  burst       integer check (burst between 1 and 10000 and rate % burst = 0),
  window_us   bigint check (window_us > 0),
  ring        bigint,
  actor       text not null,
  updated_at  timestamptz not null default clock_timestamp(),
  check (max_running is not null or rate is not null),
  check (num_nulls(rate, period_s, burst, window_us, ring) in (0, 5)),
  check (not starts_with(name, 'taskledger.')),
  check (updated_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'));

comment on table taskledger.start_limit is
  'Internal: limits of starts, as set by operators. window_us: how long a token cannot be used again. ring: of tokens; '
  'a change of burst begins another.';

create table taskledger.start_limit_change (
  is_row boolean primary key default true check (is_row),
  n      bigint not null default 0);

comment on table taskledger.start_limit_change is
  'Internal: the number of start_limits_set at the last change of a limit of starts. It has one row.';

insert into taskledger.start_limit_change default values;

create table taskledger.limited_kind (
  kind   text collate "C" not null,
  name   text collate "C" not null references taskledger.start_limit on delete cascade,
  weight integer not null default 1 check (weight between 1 and 10000),
  primary key (kind, name),
  check (not starts_with(kind, 'taskledger.')));

create index limited_kind_name on taskledger.limited_kind (name);

comment on table taskledger.limited_kind is
  'Internal: which limits a kind has. weight: how many tokens of its rate a start takes.';

create view taskledger_internal.limited_kinds as
select k.kind, k.name, k.weight, l.max_running is not null as has_permits,
       l.rate is null and l.per is null as is_plain
  from taskledger.limited_kind k
  join taskledger.start_limit l on l.name = k.name;

comment on view taskledger_internal.limited_kinds is
  'The kinds with limits of starts, and the names of these limits. has_permits: the limit is for how many tasks run at '
  'a time, or for this too. is_plain: it has one count and no rate.';

-- Like limits_set: a start searches for limits of its kind only if there has ever been one.
create sequence taskledger.start_limits_set;

comment on sequence taskledger.start_limits_set is
  'Internal: how often a limit of starts has been set; null while there has been none.';

create table taskledger.permit (
  n        bigint not null,
  taken_at timestamptz not null default clock_timestamp(),
  slot     integer not null check (slot > 0),
  version  integer,
  attempt  integer,
  name     text collate "C" not null,
  value    text collate "C" not null,
  kind     text collate "C",
  biz_id   text collate "C",
  actor    text collate "C",
  primary key (name, value, slot, n))
  with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

create unique index permit_attempt on taskledger.permit (biz_id, version, kind, name) where value = '';

comment on table taskledger.permit is
  'Internal: who holds which slot of a limit, or held it last. The row with the highest n of each slot counts. name '
  'and value: of the limit; value is empty if the limit has one count. kind and biz_id: of the holder, null if '
  'there has been none. attempt: of the holder, null until its start is recorded. version: of the first event of the '
  'attempt. actor: the worker, if it took the permit before that event.';

-- Longer than the second after which a worker records the start of an attempt.
create function taskledger_internal.permit_lasts() returns interval
language sql immutable parallel safe
return interval '10 s';

comment on function taskledger_internal.permit_lasts() is
  'Returns how long an attempt holds its permits while it has no event.';

create table taskledger.start_token (
  ring     bigint not null,
  n        bigint not null,
  taken_at timestamptz not null default clock_timestamp(),
  value    text collate "C" not null,
  primary key (ring, value, n))
  with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

comment on table taskledger.start_token is
  'Internal: when the tokens of a rate were used. Row n + burst is the next use of the token of row n.';

create view taskledger.start_limits as
select l.name, k.kinds, k.weights, l.per, l.max_running, l.rate, l.period_s, l.burst, l.window_us, l.actor, l.updated_at
  from taskledger.start_limit l
 cross join lateral (
   select array_agg(k.kind order by k.kind) as kinds, array_agg(k.weight order by k.kind) as weights
     from taskledger.limited_kind k
    where k.name = l.name) k;

comment on view taskledger.start_limits is
  'The limits of starts. kinds and weights: of the kinds that a limit covers. per: the column whose values have counts '
  'of their own, or null. max_running: how many of the tasks may run at a time. rate: how many may start in period_s '
  'seconds, and burst of them in window_us microseconds.';

-- Walks down from the highest slot, and reads only the newest row of each: an old transaction may keep any number of
-- removed rows from being vacuumed. Index: primary key.
create view taskledger_internal.newest_permits as
select l.name, w.value, w.slot, w.n, w.kind, w.biz_id, w.version, w.attempt, w.taken_at, w.actor
  from taskledger.start_limit l
 cross join lateral (
   with recursive walk as (
    (select p.value, p.slot, p.n, p.kind, p.biz_id, p.version, p.attempt, p.taken_at, p.actor
       from taskledger.permit p
      where p.name = l.name
      order by p.value desc, p.slot desc, p.n desc
      limit 1)
      union all
     select q.value, q.slot, q.n, q.kind, q.biz_id, q.version, q.attempt, q.taken_at, q.actor
       from walk above
      cross join lateral (
        select p.value, p.slot, p.n, p.kind, p.biz_id, p.version, p.attempt, p.taken_at, p.actor
          from taskledger.permit p
         where p.name = l.name and (p.value, p.slot) < (above.value, above.slot)
         order by p.value desc, p.slot desc, p.n desc
         limit 1) q)
   select w.value, w.slot, w.n, w.kind, w.biz_id, w.version, w.attempt, w.taken_at, w.actor from walk w) w
 where l.max_running is not null;

comment on view taskledger_internal.newest_permits is
  'The newest row of each slot of each limit, whether or not its attempt runs.';

-- The newest row of each slot of a limit, if its attempt is running. Each run counts its attempts from 1, so a row from
-- before the run belongs to another attempt. The LIMIT clauses keep the planner on the indexes.
create view taskledger.permits as
select p.name, p.value, p.slot, p.n, p.kind, p.biz_id, least(p.version, h.version) as version,
       coalesce(p.attempt, h.attempt + 1) as attempt, p.taken_at,
       case when h.version < p.version then p.actor else h.actor end as actor, h.version >= p.version as is_recorded
  from taskledger_internal.newest_permits p
 cross join lateral (
   select e.type, e.version, e.attempt, e.actor
     from taskledger.event e
    where e.kind = p.kind and e.biz_id = p.biz_id
    order by e.version desc
    limit 1) h
 where h.type in ('started', 'progressed')
       and (h.version = p.version
            or h.attempt = p.attempt and taskledger_internal.args_version(p.kind, p.biz_id) <= p.version)
    or h.version = p.version - 1 and p.taken_at > clock_timestamp() - taskledger_internal.permit_lasts();

comment on view taskledger.permits is
  'The permits of running attempts, with the worker that runs each. name: of the limit. value: of the column that the '
  'limit is per, else empty. version: of the start, or if that is not recorded yet of the event before.';

-- Walks from value to value. Index: primary key.
create view taskledger_internal.start_rings as
select l.name, l.ring, l.burst, l.window_us * interval '1 microsecond' as "window", v.value, v.n as newest
  from taskledger.start_limit l
 cross join lateral (
   with recursive walk as (
    (select t.value, t.n
       from taskledger.start_token t
      where t.ring = l.ring
      order by t.value desc, t.n desc
      limit 1)
      union all
     select q.value, q.n
       from walk above
      cross join lateral (
        select t.value, t.n
          from taskledger.start_token t
         where t.ring = l.ring and t.value < above.value
         order by t.value desc, t.n desc
         limit 1) q)
   select w.value, w.n from walk w) v;

comment on view taskledger_internal.start_rings is
  'The rings of tokens, for each value of a limit, with the number of their newest use.';

create view taskledger_internal.recent_starts as
select r.name, r.value, t.taken_at
  from taskledger_internal.start_rings r
  join taskledger.start_token t on t.ring = r.ring and t.value = r.value and t.n > r.newest - r.burst
 where t.taken_at > clock_timestamp() - r."window";

comment on view taskledger_internal.recent_starts is
  'When the tokens of rates were used that cannot be used again yet.';

-- The number of attempts that hold a permit, over all values of the limit.
create view taskledger.limit_use as
select l.name, (select count(*) from taskledger.permits p where p.name = l.name) as running,
       (select min(p.taken_at) from taskledger.permits p where p.name = l.name) as oldest_at,
       (select min(s.taken_at) + l.window_us * interval '1 microsecond'
          from taskledger_internal.recent_starts s
         where l.rate is not null and s.name = l.name
        having count(*) >= l.burst) as next_at
  from taskledger.start_limit l;

comment on view taskledger.limit_use is
  'The use of each limit. running: the attempts that hold a permit; after a limit was lowered these can be more than '
  'it allows, until they end. oldest_at: since when the first of them has. next_at: when the next task can start, if '
  'the rate allows none now; only of limits with one count.';

-- A task's values come from the event that begins its run, so a worker's event cannot change them.
-- +goose StatementBegin
create function taskledger_internal.limit_value(per text, kind text, biz_id text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.limit_value(text, text, text) is
  'Returns the value under which a limit counts a task: empty for a limit with one count, null if a limit per a column '
  'does not apply to the task.';

-- Sets or replaces a limit, and creates its slots and tokens. A slot needs a first row before a start can lock it. A
-- new slot gets one even if it seems to have rows, because the snapshot may be older than their removal; a first row
-- below others is removed later.
--
-- Running tasks of the kinds that are on the list of unfinished tasks and hold no permit of the limit hold slots above
-- it: no task starts until enough of them have ended.
--
-- Another burst means another ring, which contains the newest uses of the last one. An uncommitted start has locked a
-- use of the last ring, and counts as starting now.
-- +goose StatementBegin
create function taskledger_internal.set_start_limit(
  name text, kinds text[], weights integer[], per text, max_running integer, rate integer, period_s integer,
  burst integer, actor text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.set_start_limit(text, text[], integer[], text, integer, integer, integer,
                                                        integer, text) is
  'Sets or replaces a limit of starts.';

-- A REPEATABLE READ snapshot may lack a limit or show an earlier version, so a start fails if a limit has been set
-- since. The row of an uncommitted change is locked. Usually the numbers alone show that there was no change.
-- +goose StatementBegin
create function taskledger_internal.check_limits_are_current() returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.check_limits_are_current() is
  'Raises a serialization failure if a limit of starts was set after the snapshot of the transaction.';

-- Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.newest_permits(name text, value text)
returns table (slot integer, n bigint, kind text, biz_id text, version integer, attempt integer,
               taken_at timestamptz)
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  select p.slot, p.n, p.kind, p.biz_id, p.version, p.attempt, p.taken_at
    from generate_series(1, (
           select q.slot
             from taskledger.permit q
            where q.name = newest_permits.name and q.value = newest_permits.value
            order by q.slot desc
            limit 1)) s(slot)
   cross join lateral (
     select q.slot, q.n, q.kind, q.biz_id, q.version, q.attempt, q.taken_at
       from taskledger.permit q
      where q.name = newest_permits.name and q.value = newest_permits.value and q.slot = s.slot
      order by q.n desc
      limit 1) p;
end;
-- +goose StatementEnd

comment on function taskledger_internal.newest_permits(text, text) is
  'Returns the newest row of each slot of a limit''s value, whether or not its attempt runs.';

-- +goose StatementBegin
create function taskledger_internal.make_slot(name text, value text, slot integer) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '1ms' as $$
#variable_conflict use_variable
begin
  insert into taskledger.permit (name, value, slot, n) values (name, value, slot, 0)
      on conflict on constraint permit_pkey do nothing;
  return found;
exception when lock_not_available then
  return null;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.make_slot(text, text, integer) is
  'Makes a slot of a value. Returns false if it exists, null if an open transaction makes it.';

-- +goose StatementBegin
create function taskledger_internal.refuse_second_start(kind text, biz_id text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  raise exception 'taskledger: task %/% cannot start: another worker has just begun it', kind, biz_id
    using errcode = 'TL008', hint = 'try again in 10 s: if that worker is gone, the task can start then';
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.refuse_second_start(text, text) is
  'Raises TL008, because another worker has a permit for the same attempt.';

-- An expired permit is given up, so that the index allows another one. A start that has found the permit expired, and
-- has not locked it yet, finds another n. Index: permit_attempt.
-- +goose StatementBegin
create function taskledger_internal.keep_own_permit(name text, kind text, biz_id text, version integer, attempt integer,
                                                    actor text) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.keep_own_permit(text, text, text, integer, integer, text) is
  'Renews the permit that a worker took for an attempt before its first event. Returns false if there is none or it '
  'has expired, and raises TL008 if it is another worker''s.';

-- While attempts hold slots above a lowered limit, the same number of the highest slots within the limit must stay
-- free. Each start relies on free slots above its own, so two simultaneous starts cannot exceed the limit together. An
-- open start under the higher limit has locked its slot, and a locked slot is not free. A start reads the limit again
-- after it has locked a slot. So either it obeys the new limit, or every start that does finds its slot locked.
--
-- The search reads a few slots at a time, and continues where the session's last search ended: slots that were taken
-- long ago are probably free. Other free slots that it finds are for the session's next starts. The setting
-- taskledger.slots lists them, as a hint only: every slot is checked again.
--
-- The starts of a value create its slots: of 256, the lowest that is missing and that no open transaction is creating.
-- Slots can be missing below others after a rollback, or because they were removed while a start created a higher one.
-- Indexes: primary keys, event_run.
-- +goose StatementBegin
create function taskledger_internal.take_permit(name text, value text, is_per boolean, most integer,
                                                has_above boolean, kind text, biz_id text, version integer,
                                                attempt integer, actor text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.take_permit(text, text, boolean, integer, boolean, text, text, integer,
                                                    integer, text) is
  'Takes a permit of a limit for a start. Raises TL008 if none is free.';

-- A take-over keeps the slot.
-- +goose StatementBegin
create function taskledger_internal.keep_permit(name text, value text, kind text, biz_id text, before integer,
                                                version integer, attempt integer) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.keep_permit(text, text, text, text, integer, integer, integer) is
  'Passes the permit of a task''s last attempt on to the next one. Returns false if it has none.';

-- +goose StatementBegin
create function taskledger_internal.make_token(ring bigint, value text, n bigint) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '1ms' as $$
#variable_conflict use_variable
begin
  insert into taskledger.start_token (ring, value, n, taken_at) values (ring, value, n, '-infinity')
      on conflict on constraint start_token_pkey do nothing;
  return found;
exception when lock_not_available then
  return null;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.make_token(bigint, text, bigint) is
  'Makes a token of a value. Returns false if it exists, null if an open transaction makes it.';

-- The starts of a value create its tokens, as take_permit creates slots.
--
-- The newest burst rows of a ring, with the highest numbers, were not followed by another use. A use that was locked by
-- a transaction that rolled back may be below them; tidy_tokens makes it usable again. The times come from the events,
-- so the ledger itself shows that the rate holds, however long a statement lasts. The start reads the limit again after
-- it has locked a row (see take_permit and set_start_limit). Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.take_tokens(name text, value text, is_per boolean, weight integer, kind text,
                                                at timestamptz)
returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.take_tokens(text, text, boolean, integer, text, timestamptz) is
  'Takes tokens of a rate for a start at a moment, the time of its event. Raises TL008 if there are not as many.';

-- Like take_permit, for many starts. Checks each slot once, and returns the numbers of the starts for which it has
-- found none, or that meet another start of the same attempt; take_permit handles these.
--
-- It first looks at the slots that the session took last. If one worker's statement ends attempts and starts as many,
-- their slots are probably among these. Otherwise it would take slots that other workers' statements have freed for
-- their own starts.
--
-- An index search reads all of a slot's rows on a page, however few it needs. So it begins with rows whose n is at
-- least the n of most slots that the session has seen. Indexes: primary keys, event_run.
-- +goose StatementBegin
create function taskledger_internal.take_permits_at_once(
  name text, value text, is_per boolean, most integer, kinds text[], biz_ids text[], versions integer[],
  attempts integer[], actor text, starts integer[]) returns integer[]
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.take_permits_at_once(text, text, boolean, integer, text[], text[], integer[],
                                                             integer[], text, integer[]) is
  'Takes permits of a limit for some starts of the lists, by their numbers from 1. Returns the numbers of those for '
  'which it has not found a free slot.';

-- Like take_tokens, for all starts of a statement or for none.
-- Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.take_tokens_at_once(name text, value text, weights integer[], at timestamptz[])
returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.take_tokens_at_once(text, text, integer[], timestamptz[]) is
  'Takes tokens of a rate for all starts of the lists, or for none. Reports whether it has taken them.';

-- The starts of a statement are the started and progressed events that it has inserted: they share xmin and cmin, which
-- no role can set. A progressed event that continues an attempt is not one of them.
-- Indexes: event_xid_position, primary keys.
-- +goose StatementBegin
create function taskledger_internal.take_permits_of_statement(xid xid8, first bigint) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.take_permits_of_statement(xid8, bigint) is
  'Takes permits and tokens for the starts that a statement has inserted: those from a position on, the first of them. '
  'Raises TL008 if there are not as many.';

-- A worker calls it before it begins attempts at tasks whose limits have one count and no rate. Their starts are
-- recorded after a second, like those of other tasks: see the beginning of this file. If an attempt gets no permit
-- here, the worker records its start first.
--
-- All attempts get their permits together, or else one by one. One whose task another transaction is beginning gets
-- none after 10 ms: other attempts and outcomes wait for this statement, and that transaction may stay open.
-- Runs with its owner's rights, because no role may write the table permit. Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.begin_attempts(kinds text[], biz_ids text[], versions integer[], attempts integer[],
                                                   actor text) returns integer[]
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set lock_timeout = '10ms'
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.begin_attempts(text[], text[], integer[], integer[], text) is
  'Takes the permits of attempts that a worker is about to begin, before their starts are recorded. versions: of the '
  'last events that the worker has seen. Returns the numbers of the attempts, from 1, that hold all their permits.';

-- The first start of a statement takes the permits and tokens of all. The setting taskledger.first_start is its
-- position, as a hint: if the start at that position is not an earlier one of the same statement, this one is the
-- first.
--
-- Runs with its owner's rights, because no role may write the tables permit and start_token.
-- Index: event_xid_position.
-- +goose StatementBegin
create function taskledger_internal.take_permits() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.take_permits() is
  'The trigger that takes permits and tokens for each start of a kind with limits. Raises TL008 if one is not free.';

-- Fires after the insert, so that an event that is not inserted takes no permit. A progressed event can begin an
-- attempt.
create trigger event_permits after insert on taskledger.event
  for each row when (new.type in ('started', 'progressed')) execute function taskledger_internal.take_permits();

-- Runs with its owner's rights: a worker may not read permits, and a limited worker may not read other kinds' events.
-- Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.is_limited(kind text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
  return pg_sequence_last_value('taskledger.start_limits_set'::regclass) is not null
         and exists (select from taskledger.limited_kind k where k.kind = is_limited.kind);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.is_limited(text) is 'Reports whether a kind has limits of starts.';

-- Runs with its owner's rights, like is_limited.
-- +goose StatementBegin
create function taskledger_internal.lost_holders(kind text) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.lost_holders(text) is
  'Returns the tasks of a kind that hold a permit and whose workers are gone.';

-- Removes a slot's rows, oldest first, except those that a start has locked (see the beginning of this file), and the
-- only row of a free slot above the limit. A lock on the limit's row keeps it from being raised meanwhile. A limit that
-- is being set is skipped: its transaction may be waiting for a removed row. A look-up by exact key shows whether older
-- rows are left, once for each gapless series: an old transaction may keep any number of removed rows from being
-- vacuumed. A value's slots are removed highest first, once no start has used them for 10 s. Indexes: primary keys.
--
-- After the clock was set back, permits that workers took before an event were taken in the future: they count as taken
-- now.
-- +goose StatementBegin
create function taskledger_internal.remove_permits(how_many integer) returns integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.remove_permits(integer) is
  'Removes at most how_many old rows of slots, and as many free slots. Returns how many slots and rows it has removed.';

-- After the clock was set back, some tokens were used in the future: they count as used now.
--
-- A use whose token no start can find is inserted again, with its time, up to the newest use of its ring.
--
-- Uses are removed oldest first, except locked ones, like the rows of slots. A value's ring is removed once no start
-- has used it for a window and 10 s; so are rings of earlier limits. Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.tidy_tokens(how_many integer) returns integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.tidy_tokens(integer) is
  'Removes old uses of tokens, at most how_many of each sort, and makes tokens usable whose last use is in the future '
  'or is not known to starts. Returns how many rows it has removed.';

-- The shares of partitions. A dispatcher reads all of them whenever it reads the limits.
create table taskledger.partition_weight (
  partition  text collate "C" primary key check (octet_length(partition) between 1 and 64
                                                 and partition !~ '[\u0001-\u001f\u007f-\u009f]'),
  weight     numeric not null check (weight between 0.01 and 100),
  actor      text not null,
  updated_at timestamptz not null default clock_timestamp()
             check (updated_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'));

comment on table taskledger.partition_weight is
  'The weights of partitions, as set by operators. The weight of a partition without a row is 1. While tasks of a '
  'kind and priority wait in two partitions, they begin in proportion to the weights.';

create view taskledger_internal.partition_weights as
select w.partition, w.weight, w.actor, w.updated_at from taskledger.partition_weight w;

comment on view taskledger_internal.partition_weights is 'The partitions with a weight other than the default of 1.';

revoke all on all tables in schema taskledger, taskledger_internal from public;
revoke all on all sequences in schema taskledger, taskledger_internal from public;
revoke all on all functions in schema taskledger, taskledger_internal from public;
