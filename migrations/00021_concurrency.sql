-- Concurrency limits: how many tasks of a kind may run at a time, over all workers.
-- Owner: package ledger.
--
--   concurrency_limit  written and read by ledger (limit --concurrency, delete limit)
--   concurrency_set    drawn from and read here
--   permit             written by the trigger of event and by make_slots; the dispatcher calls remove_permits
--
-- Other packages read the views limited_kinds, concurrency and permits, and call remove_permits.
--
-- A start takes a permit: one of the slots of its kind, 1 to the limit. The trigger event_permit takes it, in each
-- statement that inserts the event started. So no program, no dispatcher and no role can start one task too many:
-- without a free slot the statement fails with SQLSTATE TL008.
--
-- The newest row of a slot, the one with the highest n, counts. Its attempt holds the slot while it is the last attempt
-- of its task and runs: its end is an event, and stays true. A start locks the newest row of a free slot, passes over
-- rows that others have locked, and inserts the row n + 1. So starts neither wait for each other nor update a row.
-- Rows are removed from the oldest on, and never while a start has locked them. So a start that has stood still for
-- hours cannot insert a row n + 1 that existed before: it does not find row n any more, or n + 1 still exists.

-- +goose Up

create table taskledger.concurrency_limit (
  kind        text collate "C" primary key,
  max_running integer not null check (max_running between 0 and 10000),
  actor       text not null,
  updated_at  timestamptz not null default clock_timestamp(),
  check (not starts_with(kind, 'taskledger.')),
  check (updated_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'));

comment on table taskledger.concurrency_limit is
  'How many tasks of a kind may run at a time, as set by an operator. A kind without a row is unlimited.';

create view taskledger.limited_kinds as
select l.kind, l.max_running from taskledger.concurrency_limit l;

comment on view taskledger.limited_kinds is 'The kinds with a concurrency limit.';

-- As limits_set: a start searches for a limit of its kind only if there has ever been one.
create sequence taskledger.concurrency_set;

comment on sequence taskledger.concurrency_set is
  'Internal: how often a concurrency limit has been set; null while there has been none.';

create table taskledger.permit (
  n        bigint not null,
  taken_at timestamptz not null default clock_timestamp(),
  slot     integer not null check (slot > 0),
  version  integer,
  attempt  integer,
  name     text collate "C" not null,
  kind     text collate "C",
  biz_id   text collate "C",
  primary key (name, slot, n))
  with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);

comment on table taskledger.permit is
  'Internal: who has held which slot of a limit. The row with the highest n of each slot counts. kind, biz_id and '
  'attempt: of the holder, null if there has been none. name: of the limit, which is the kind.';

-- The walk goes down from the highest slot, and reads the newest row of each slot alone: an old transaction may keep
-- any number of removed rows from being vacuumed. Index: primary key.
create view taskledger.newest_permits as
select l.kind as name, w.slot, w.n, w.kind, w.biz_id, w.version, w.attempt, w.taken_at
  from taskledger.concurrency_limit l
 cross join lateral (
   with recursive walk as (
    (select p.slot, p.n, p.kind, p.biz_id, p.version, p.attempt, p.taken_at
       from taskledger.permit p
      where p.name = l.kind
      order by p.slot desc, p.n desc
      limit 1)
      union all
     select q.slot, q.n, q.kind, q.biz_id, q.version, q.attempt, q.taken_at
       from walk above
      cross join lateral (
        select p.slot, p.n, p.kind, p.biz_id, p.version, p.attempt, p.taken_at
          from taskledger.permit p
         where p.name = l.kind and p.slot < above.slot
         order by p.slot desc, p.n desc
         limit 1) q)
   select walk.slot, walk.n, walk.kind, walk.biz_id, walk.version, walk.attempt, walk.taken_at from walk) w;

comment on view taskledger.newest_permits is
  'Internal: the newest row of each slot of each limit, whether or not its attempt runs.';

-- The newest row of each slot of a limit, if its attempt runs. Attempts are counted from 1 in each run: a row from
-- before the run is of another attempt. The limits keep the planner on the indexes.
create view taskledger.permits as
select p.name, p.slot, p.n, p.kind, p.biz_id, p.version, p.attempt, p.taken_at, h.actor
  from taskledger.newest_permits p
 cross join lateral (
   select e.type, e.attempt, e.actor
     from taskledger.event e
    where e.kind = p.kind and e.biz_id = p.biz_id
    order by e.version desc
    limit 1) h
 where h.type in ('started', 'progressed') and h.attempt = p.attempt
   and coalesce((
     select r.version
       from taskledger.event r
      where r.kind = p.kind and r.biz_id = p.biz_id and r.run is not null
      order by r.version desc
      limit 1), 0) <= p.version;

comment on view taskledger.permits is
  'The permits of running attempts, with the worker that runs each. name: of the limit, which is the kind.';

create view taskledger.concurrency as
select l.kind, l.max_running,
       (select count(*) from taskledger.permits p where p.name = l.kind) as running
  from taskledger.concurrency_limit l;

comment on view taskledger.concurrency is
  'Each kind with a concurrency limit, and how many of its attempts hold a permit. After a limit was lowered these can '
  'be more than it allows, until they end.';

-- A slot has a first row before a start can lock it. A new slot gets it even if it seems to have rows: the snapshot may
-- be older than their removal. A first row below others is removed again.
--
-- If a kind gets its first limit, the tasks that run then, and are on the list of unfinished tasks, hold slots above
-- the limit: no task starts until enough of them have ended.
-- +goose StatementBegin
create function taskledger_internal.make_slots() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform nextval('taskledger.concurrency_set');
  insert into taskledger.permit (name, slot, n)
  select new.kind, s.slot, 0
    from generate_series(case when tg_op = 'UPDATE' and old.kind = new.kind then old.max_running else 0 end + 1,
                         new.max_running) s(slot)
      on conflict (name, slot, n) do nothing;
  if tg_op = 'INSERT' then
    insert into taskledger.permit (name, slot, n, kind, biz_id, version, attempt)
    select new.kind,
           greatest(new.max_running, (select coalesce(max(p.slot), 0) from taskledger.permit p where p.name = new.kind))
             + row_number() over (),
           1, new.kind, t.biz_id, h.version, h.attempt
      from taskledger.lingering_tasks t
     cross join lateral (
       select e.version, e.attempt, e.type
         from taskledger.event e
        where e.kind = t.kind and e.biz_id = t.biz_id
        order by e.version desc
        limit 1) h
     where t.kind = new.kind and h.type in ('started', 'progressed')
       and t.biz_id not in (select p.biz_id from taskledger.permits p where p.name = new.kind);
  end if;
  return null;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.make_slots() is
  'The trigger that makes the slots of a concurrency limit when it is set or raised.';

create trigger concurrency_slots after insert or update on taskledger.concurrency_limit
  for each row execute function taskledger_internal.make_slots();

-- For rows of a logical replication too.
alter table taskledger.concurrency_limit enable always trigger concurrency_slots;

-- With its owner's rights: no role may write the table permit.
--
-- While attempts hold slots above a lowered limit, as many of the highest free slots up to the limit stay free. Each
-- start relies on free slots above its own, so two starts at the same moment cannot exceed the limit together. A start
-- under the higher limit, whose transaction is open, has locked its slot: a locked slot is not free.
-- A start reads the limit again when it has locked a slot. So either it is under the new limit, or every start that is
-- finds its slot locked.
-- The search begins at a random slot: a start reads few rows if many slots are free.
-- Indexes: primary keys, event_run.
-- +goose StatementBegin
create function taskledger_internal.take_permit() returns trigger
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
declare
  most integer;
  latest integer;
  above integer;
  allowed integer[];
  free record;
  before record;
  place record;
  begin_at integer;
begin
  if pg_sequence_last_value('taskledger.concurrency_set'::regclass) is null then
    return null;
  end if;
  select l.max_running into most from taskledger.concurrency_limit l where l.kind = new.kind;
  if not found then
    return null;
  end if;
  select e.type, e.attempt into before
    from taskledger.event e
   where e.kind = new.kind and e.biz_id = new.biz_id and e.version = new.version - 1;
  if before.type in ('started', 'progressed') then
    if new.type = 'progressed' then
      return null;
    end if;
    select p.slot, p.n into place -- a take-over keeps the slot
      from taskledger.newest_permits p
     where p.name = new.kind and p.kind = new.kind and p.biz_id = new.biz_id and p.attempt = before.attempt
       and coalesce((
         select r.version
           from taskledger.event r
          where r.kind = p.kind and r.biz_id = p.biz_id and r.run is not null
          order by r.version desc
          limit 1), 0) <= p.version;
    if found then
      insert into taskledger.permit (name, slot, n, kind, biz_id, version, attempt)
      values (new.kind, place.slot, place.n + 1, new.kind, new.biz_id, new.version, new.attempt);
      return null;
    end if;
  end if;
  loop
    allowed := null;
    if exists (select from taskledger.permit p where p.name = new.kind and p.slot > most) then
      begin
        with slot as materialized (
          select p.slot, p.n, p.kind, p.biz_id, p.attempt from taskledger.newest_permits p where p.name = new.kind
        ), lockable as materialized (
          select f.slot, f.n
            from slot s
            join taskledger.permit f on f.name = new.kind and f.slot = s.slot and f.n = s.n
           where not exists (
             select
               from (
                 select e.type, e.attempt
                   from taskledger.event e
                  where e.kind = s.kind and e.biz_id = s.biz_id
                  order by e.version desc
                  limit 1) h
              where h.type in ('started', 'progressed') and h.attempt = s.attempt)
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
             select from taskledger.permit q where q.name = new.kind and q.slot = f.slot and q.n > f.n)
        )
        select free.above - (select count(*) from free f where f.slot > most),
               array(select f.slot from free f where f.slot <= most order by f.slot desc)
          into above, allowed;
        allowed := allowed[above + 1:];
        raise sqlstate 'TL007'; -- unlocks the slots
      exception when sqlstate 'TL007' then
        null;
      end;
    end if;
    begin_at := (random() * greatest(most - 1, 0))::integer;
    select p.slot, p.n into place
      from (select (begin_at + g) % most + 1 as slot from generate_series(0, most - 1) g) s
     cross join lateral (
       select q.n from taskledger.permit q where q.name = new.kind and q.slot = s.slot order by q.n desc limit 1) newest
     cross join lateral (
       select f.slot, f.n
         from taskledger.permit f
        where f.name = new.kind and f.slot = s.slot and f.n = newest.n
          and not exists (
            select
              from (
                select e.type, e.attempt
                  from taskledger.event e
                 where e.kind = f.kind and e.biz_id = f.biz_id
                 order by e.version desc
                 limit 1) h
             where h.type in ('started', 'progressed') and h.attempt = f.attempt
               and coalesce((
                 select r.version
                   from taskledger.event r
                  where r.kind = f.kind and r.biz_id = f.biz_id and r.run is not null
                  order by r.version desc
                  limit 1), 0) <= f.version)
          for update skip locked) p
     where allowed is null or s.slot = any (allowed)
     limit 1;
    if not found then
      raise exception 'taskledger: no task of kind % can start: at most % may run at a time', new.kind, most
        using errcode = 'TL008', hint = 'try again when one has ended, or raise the limit: taskledger limit '
                                        || new.kind || ' --concurrency N';
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then -- its snapshot may have an earlier limit
      begin
        perform from taskledger.concurrency_limit l where l.kind = new.kind for share skip locked;
        raise sqlstate 'TL007'; -- unlocks the limit
      exception when sqlstate 'TL007' then
        null;
      end;
    end if;
    select l.max_running into latest from taskledger.concurrency_limit l where l.kind = new.kind;
    if latest <> most then
      most := latest;
      continue;
    end if;
    insert into taskledger.permit (name, slot, n, kind, biz_id, version, attempt)
    values (new.kind, place.slot, place.n + 1, new.kind, new.biz_id, new.version, new.attempt)
        on conflict (name, slot, n) do nothing;
    if found then
      return null;
    end if;
  end loop; -- another start has taken the slot since the snapshot of the search
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.take_permit() is
  'The trigger that takes a permit for each start of a kind with a concurrency limit. Raises TL008 if none is free.';

-- After the insert, so that an event that is not inserted takes no permit. A progressed event can begin an attempt.
create trigger event_permit after insert on taskledger.event
  for each row when (new.type in ('started', 'progressed')) execute function taskledger_internal.take_permit();

-- With its owner's rights, because a worker may read neither permits nor, if it is limited to kinds, other events.
-- Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.free_permits(kind text) returns integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
  if pg_sequence_last_value('taskledger.concurrency_set'::regclass) is null then
    return null;
  end if;
  return (
    select greatest(0, c.max_running - c.running) from taskledger.concurrency c where c.kind = free_permits.kind);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.free_permits(text) is
  'Returns how many tasks of a kind can start now; null if it has no concurrency limit.';

-- With its owner's rights, as free_permits.
-- +goose StatementBegin
create function taskledger_internal.lost_holders(kind text) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
  perform taskledger_internal.check_kinds(array[lost_holders.kind], true);
  return query
  select p.biz_id
    from taskledger.permits p
   where p.name = lost_holders.kind
     and not exists (
       select from taskledger_internal.worker_alive_ms(p.actor, lost_holders.kind) w where w.alive_ms > 0)
   order by p.taken_at;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.lost_holders(text) is
  'Returns the tasks of a kind that hold a permit and whose workers are gone.';

-- Rows of a slot are removed from the oldest on, and none that a start has locked: see the beginning of this file. The
-- only row of a free slot above the limit is removed too. The lock of the limit's row keeps the limit from being raised
-- meanwhile. A limit that is being set is passed over: its transaction may wait for a removed row. An exact key shows
-- whether older rows are left, once for each series of rows without gaps: an old transaction may keep any number of
-- removed rows from being vacuumed. Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.remove_permits(how_many integer) returns integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  removed integer;
  removed_slots integer;
begin
  with old as materialized (
    select p.name, p.slot, p.n
      from taskledger.permit p
     where exists (select from taskledger.permit q where q.name = p.name and q.slot = p.slot and q.n > p.n)
     order by p.name, p.slot, p.n
     limit how_many
       for update skip locked
  ), numbered as materialized (
    select o.name, o.slot, o.n, o.n - row_number() over (partition by o.name, o.slot order by o.n) as series from old o
  ), series as materialized (
    select o.name, o.slot, o.series, min(o.n) as first from numbered o group by o.name, o.slot, o.series
  ), oldest as materialized (
    select o.name, o.slot, o.n
      from numbered o
      join series s on s.name = o.name and s.slot = o.slot and s.series = o.series
     where not exists (
       select from taskledger.permit q where q.name = s.name and q.slot = s.slot and q.n = s.first - 1)
  )
  delete from taskledger.permit p using oldest o where p.name = o.name and p.slot = o.slot and p.n = o.n;
  get diagnostics removed = row_count;
  with unused as materialized (
    select p.name, p.slot, p.n
      from taskledger.permit p
      join taskledger.concurrency_limit l on l.kind = p.name
     where p.slot > l.max_running
       and not exists (select from taskledger.permit q where q.name = p.name and q.slot = p.slot and q.n <> p.n)
       and not exists (select from taskledger.permits h where h.name = p.name and h.slot = p.slot)
     limit how_many
       for share of l skip locked
       for update of p skip locked
  )
  delete from taskledger.permit p using unused u where p.name = u.name and p.slot = u.slot and p.n = u.n;
  get diagnostics removed_slots = row_count;
  return removed + removed_slots;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.remove_permits(integer) is
  'Removes at most how_many old rows of slots, and as many free slots above their limits. Returns how many rows it '
  'has removed.';

-- With its owner's rights: see remove_limit. The slots stay: a limit that is set again counts their holders.
-- Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.remove_concurrency_limit(kind text) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  delete from taskledger.concurrency_limit l where l.kind = remove_concurrency_limit.kind returning l.kind;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.remove_concurrency_limit(text) is
  'Removes the concurrency limit of a kind, and returns the kind if it had one.';

revoke all on all tables in schema taskledger from public;
revoke all on all sequences in schema taskledger from public;
revoke all on all functions in schema taskledger, taskledger_internal from public;
