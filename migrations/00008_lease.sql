-- Leases: which processes are alive.
-- Owner: package internal/lease.
--
--   lease  written and read by internal/lease: the row relay for outbox, the row discarder for schedulers, the row
--                sealer, the row dispatcher, the row broker for the NATS server of serve, or one of each member of its
--                cluster; for workers one row of each worker process, and of each session over HTTP that has
--                attempts of an ended process
--   mutex  rows to lock: each role locks the rows of its job
--   fence_key, remote_session  workers over HTTP whose calls reach several processes of serve
--
-- Other packages read the views relay_lease, workers, worker_kinds and broker, and call worker_alive_ms. Workers in
-- other languages call heartbeat.

-- +goose Up

-- The length of a month or of a year depends on the date, and 1200 months less 35,999 days equal a day.
create table taskledger.lease (
  name        text collate "C" primary key,
  holder      text not null,
  since       timestamptz not null default clock_timestamp(),
  alive_until timestamptz not null,
  term        interval not null default '1 day'
    check (term between '0' and '1 day' and date_part('year', term) = 0 and date_part('month', term) = 0),
  backend     integer,
  detail      json,
  login       text collate "C" not null default session_user)
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

comment on table taskledger.lease is
  'One row for each service (relay, discarder, sealer, dispatcher, broker) and each worker process, valid until '
  'alive_until; and one for each session over HTTP with attempts of an ended process (detail: is_session). term is the '
  'duration for which it was last taken: if alive_until is further away, it was taken while the clock was ahead. '
  'backend is the server process of a connection that the holder keeps open; null without such a connection, or '
  'behind a pooler. login is the holder''s database login (session_user): no role changes the lease of another '
  'login''s worker. A lease saves double work; correctness never depends on it.';

create view taskledger_internal.relay_lease as
select l.holder, l.since, l.alive_until, l.alive_until > clock_timestamp() as is_alive, l.detail->>'note' as note,
       l.detail->>'cause' as note_cause, (l.detail->>'since')::timestamptz as note_since,
       coalesce((l.detail->>'refused')::boolean, false) as is_refusing,
       l.alive_until > clock_timestamp() + l.term as is_ahead, coalesce(l.backend, 0) as backend,
       l.backend is not null and not pg_is_in_recovery()
         and not exists (select from pg_catalog.pg_stat_activity a where a.pid = l.backend) as is_gone
  from taskledger.lease l
 where l.name = 'relay';

comment on view taskledger_internal.relay_lease is
  'The last holder of the relay''s lease. note is why it cannot work, since note_since; note_cause is ''store'' if '
  'JetStream stores no message, ''off'' if no relay is expected to run. is_refusing: it waits for an operator. '
  'is_ahead: the lease was taken before the clock was set back, and not renewed since. is_gone: the server process '
  'backend of the holder''s connection has ended; a live holder reconnects at once.';

-- Any program can have written a row, so nothing in it may make a reader fail.
-- +goose StatementBegin
create function taskledger_internal.lease_kinds(detail json) returns text[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
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
$$;
-- +goose StatementEnd

comment on function taskledger_internal.lease_kinds(json) is
  'Returns the kinds in the detail of a worker''s lease; null if the detail is malformed.';

-- +goose StatementBegin
create function taskledger_internal.is_lease(name text, holder text, since timestamptz, alive_until timestamptz,
                                             term interval, detail json) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return not starts_with(name, 'worker/')
      or name = 'worker/' || holder and octet_length(holder) between 1 and 255
     and least(since, alive_until) >= '1970-01-01 00:00:00+00'
     and since <= clock_timestamp() + interval '1 day' and alive_until <= clock_timestamp() + term
     and taskledger_internal.lease_kinds(detail) is not null
     and taskledger_internal.check_kinds(taskledger_internal.lease_kinds(detail));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.is_lease(text, text, timestamptz, timestamptz, interval, json) is
  'Reports whether a lease is well-formed: a worker''s lease lasts at most its term, and its detail lists '
  'kinds that the role may work on.';

-- The detail of a session's lease contains "is_session":true, which cannot be within a text of a detail. Views search
-- for it, because ->> fails for a malformed detail.
create view taskledger.workers as
select l.holder as worker, l.since, l.alive_until,
       case when l.alive_until <= clock_timestamp() then 0
            else greatest(0, extract(epoch from least(l.alive_until, clock_timestamp() + l.term)
                                                - clock_timestamp()) * 1000) end::bigint as alive_ms,
       (extract(epoch from l.term) * 1000)::bigint as term_ms, l.detail
  from taskledger.lease l
 where l.name like 'worker/%' and l.since between '1970-01-01 00:00:00+00' and '9999-01-01 00:00:00+00'
   and taskledger_internal.lease_kinds(l.detail) is not null and strpos(l.detail::text, '"is_session":true') = 0;

comment on view taskledger.workers is
  'The workers that are alive, or were lost within about a day; without leases of sessions. alive_ms: for how many '
  'milliseconds a worker still counts as alive, 0 if it is lost; term_ms: for how many after each renewal. detail: its '
  'kinds, guarantees and shards.';

create view taskledger_internal.dispatcher as
select (l.detail->>'epoch')::bigint as epoch, l.detail->>'key' as key, (l.detail->>'latency_us')::bigint as latency_us
  from taskledger.lease l
 where l.name = 'dispatcher';

comment on view taskledger_internal.dispatcher is
  'The number of the active dispatcher, or of the last one, its public key (hex), and for how many '
  'microseconds it lets events gather. Without one, no row.';

create view taskledger_internal.worker_kinds as
select l.holder as worker, k.kind
  from taskledger.lease l
 cross join lateral unnest(taskledger_internal.lease_kinds(l.detail)) k(kind)
 where l.name like 'worker/%' and l.alive_until > clock_timestamp() and strpos(l.detail::text, '"is_session":true') = 0;

comment on view taskledger_internal.worker_kinds is 'The kinds that each live worker handles.';

create view taskledger_internal.claimed_kinds as
select distinct k.kind
  from taskledger.lease l
 cross join lateral unnest(taskledger_internal.lease_kinds(l.detail)) k(kind)
 where l.name like 'worker/%' and l.alive_until > clock_timestamp() and l.detail->>'key' is null
   and strpos(l.detail::text, '"is_session":true') = 0;

comment on view taskledger_internal.claimed_kinds is
  'The kinds of live workers that claim tasks, and do not ask the dispatcher for them.';

-- Any login may take a lease with a free name, so a lease counts only for the kinds in its detail. The function is
-- inlined in FROM, and finds its row by the primary key.
-- +goose StatementBegin
create function taskledger_internal.worker_alive_ms(worker text, kind text) returns table (alive_ms bigint)
language sql stable rows 1
begin atomic
  select case when l.alive_until <= clock_timestamp() then 0
              else greatest(0, extract(epoch from least(l.alive_until, clock_timestamp() + l.term)
                                                  - clock_timestamp()) * 1000) end::bigint
    from taskledger.lease l
   where l.name = 'worker/' || worker_alive_ms.worker
     and worker_alive_ms.kind = any (taskledger_internal.lease_kinds(l.detail));
end;
-- +goose StatementEnd

comment on function taskledger_internal.worker_alive_ms(text, text) is
  'Returns for how many milliseconds a worker of a kind still counts as alive, 0 if it is lost; '
  'no row without a lease for this kind.';

-- +goose StatementBegin
create function taskledger_internal.is_anothers_worker(worker text, kind text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  return exists (
    select from taskledger.lease l
     where l.name = 'worker/' || worker and l.login <> session_user and l.alive_until > clock_timestamp()
       and is_anothers_worker.kind = any (taskledger_internal.lease_kinds(l.detail)));
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.is_anothers_worker(text, text) is
  'Returns whether a worker of a kind and of another login is alive, so that the session''s login must not '
  'act as it.';

-- Another login's lease counts as the policy of the table has it: until it has ended, and then for a session's login
-- that may not work on all its kinds.
-- +goose StatementBegin
create function taskledger_internal.check_lease(worker text, kind text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.check_lease(text, text) is
  'Raises an error unless a worker of the session''s login is alive and handles a kind. With null for the kind, only '
  'if the worker belongs to another login.';

-- Runs with its owner's rights: a role with the privilege DELETE may lock the whole table, which stops every worker.
-- Locks the row. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.remove_lease(name text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  delete from taskledger.lease l
   where l.name = remove_lease.name and l.name like 'worker/%'
     and (l.login = session_user
          or l.alive_until <= statement_timestamp()
             and taskledger_internal.refused_kind(taskledger_internal.lease_kinds(l.detail), true) is null);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.remove_lease(text) is
  'Removes the lease of a worker if it belongs to the session''s login, or if it has ended and the login may work on '
  'all its kinds.';

-- As remove_lease. Skips rows that another transaction has locked. Reads the whole small table. A program that crashes
-- repeatedly at its start leaves a lease each time; their number is bounded, so that they can be read.
-- +goose StatementBegin
create function taskledger_internal.sweep_leases() returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.sweep_leases() is
  'Removes the leases that ended a day ago, and the ended leases of workers except the newest 1000.';

-- A lease that ends in more than its term was taken before the clock was set back. A live holder renews it within one
-- term. The relay calls this with each renewal, and while it stands by. Locks such rows, and skips rows that another
-- transaction has locked: no worker may stop the relay. Reads the whole small table.
-- +goose StatementBegin
create function taskledger_internal.bound_leases() returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  update taskledger.lease l
     set alive_until = clock_timestamp() + l.term
   where l.name in (
     select d.name from taskledger.lease d where d.alive_until > clock_timestamp() + d.term for update skip locked);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.bound_leases() is
  'Makes leases that were taken before the clock was set back end after one more term.';

-- As remove_lease.
-- +goose StatementBegin
create function taskledger_internal.release_relay(holder text) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  delete from taskledger.lease l where l.name = 'relay' and l.holder = release_relay.holder;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.release_relay(text) is
  'Removes the lease of the relay, if this holder has it.';

-- Writes the same row as a worker in Go. Locks the row. Index: primary key.
-- +goose StatementBegin
create function taskledger.heartbeat(worker text, kinds text[], lease_for interval default '30 seconds',
                                     guarantee text default 'exactly once') returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger.heartbeat(text, text[], interval, text) is
  'Renews or creates a worker''s lease. While it lasts, no other worker takes over its tasks. kinds are the kinds '
  'that it works on. guarantee is exactly once if effects commit with taskledger.finish, else at least once. A '
  'duration of 0 removes the lease. A worker''s id belongs to the login that holds its lease.';

-- A worker that asks the dispatcher for tasks begins a task without a record. If other workers claim tasks of the kind,
-- it records each start first. Once everything that it has begun is recorded, it lists the kind in its lease, under
-- records. A worker that claims waits for that, so that no handler begins twice. It then lists the kind in its own
-- lease, under admitted. Workers that begin to ask later find that lease. Locks its own row. Reads the whole small
-- table until it is admitted.
-- +goose StatementBegin
create function taskledger_internal.may_claim(worker text, kind text) returns boolean
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.may_claim(text, text) is
  'Returns whether a worker may claim tasks of a kind: each live worker that asks the dispatcher for them '
  'records their starts first.';

-- +goose StatementBegin
create function taskledger_internal.poll_place(worker text, kind text) returns json
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return (select l.detail -> 'places' -> kind from taskledger.lease l where l.name = 'worker/' || worker);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.poll_place(text, text) is
  'Returns the place after which a worker continues to look for waiting tasks of a kind; null: none.';

-- +goose StatementBegin
create function taskledger_internal.set_poll_place(worker text, kind text, place json) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  update taskledger.lease l
     set detail = l.detail::jsonb || jsonb_build_object(
           'places', coalesce((l.detail -> 'places')::jsonb, '{}') || jsonb_build_object(kind, place))
   where l.name = 'worker/' || worker;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.set_poll_place(text, text, json) is
  'Stores the place after which a worker continues to look for waiting tasks of a kind.';

-- Advisory locks cannot be granted or revoked: any role that may connect could hold one. The policies of roles.sql
-- admit the rows that each role locks. Functions with their owner's rights lock the others.
create table taskledger.mutex (
  name      text collate "C" primary key,
  is_locked boolean);  -- never written: the privilege to update it is the privilege to lock the row

comment on table taskledger.mutex is
  'Internal: rows to lock: schedules, seal, workers/ with each kind, alarm/ with each receiver of alarms, '
  'subscribers/ with each login that has subscribers, leases/ with each login that has leases of workers.';

alter table taskledger.mutex enable row level security;

insert into taskledger.mutex (name) values ('schedules');

-- A row for each kind, so that a login that is limited to kinds delays no worker of other kinds. The order of the names
-- prevents deadlocks. A transaction that waits for a concurrent insert finds that row in the second statement. Locks
-- the rows until the transaction ends. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.lock_workers(kinds text[]) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.lock_workers(text[]) is
  'Locks workers of these kinds that take their first lease against each other, until the transaction ends.';

-- Runs with its owner's rights: no role may take the lock, which makes sessions of one login count one after the other.
-- A volatile function sees the rows that the calling statement has written. Extending a lease takes no lock. Reads the
-- whole small table, when a lease is new or grows. Locks a row until the transaction ends.
-- +goose StatementBegin
create function taskledger_internal.may_have_lease(name text, detail json) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.may_have_lease(text, json) is
  'Returns true if the session''s login may have one more lease of a worker, and raises an error '
  'otherwise: reading all leases must not take long because of one login. A worker holds one lease, and one more if it '
  'divides shards.';

-- No copy of a database contains a session's lock: neither a dump nor a physical copy. The lock counts only for the
-- lease's login: every login can lock a number, and workers can read the nonce.
create view taskledger.broker as
select l.holder, l.since, l.alive_until > clock_timestamp() as is_alive, l.detail->>'address' as address,
       l.detail->>'ca' as ca, l.detail->>'peers' as peers, substr(l.name, 8) as member,
       coalesce((l.detail->>'asleep')::boolean, false) as is_asleep,
       exists (
         select from pg_catalog.pg_locks k
           join pg_catalog.pg_stat_activity a on a.pid = k.pid and a.usename = l.login
          where k.locktype = 'advisory' and k.objsubid = 1 and k.granted and k.mode = 'ExclusiveLock'
            and k.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
            and k.classid::bigint = (l.detail->>'nonce')::bigint >> 32
            and k.objid::bigint = (l.detail->>'nonce')::bigint & 4294967295) as is_here
  from taskledger.lease l
 where l.name = 'broker' or l.name like 'broker/%';

comment on view taskledger.broker is
  'The NATS server that serve runs; with --peers, one row for each member of the cluster, and peers lists all '
  'members. is_here: its process holds a lock in this database, whose number is the lease''s nonce. Otherwise this '
  'database is a copy and the row belongs to its original, or the process has ended, or is_asleep: it runs without a '
  'session until a message wakes it.';

insert into taskledger.mutex (name) values ('archive');

-- Runs with its owner's rights: its callers may lock no row. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.lock_archive() returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform from taskledger.mutex m where m.name = 'archive' for update;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.lock_archive() is
  'Makes runs of the archive take turns, until the transaction ends.';

-- A process of serve seals the fences of attempts that it gives to workers over HTTP, so that another process accepts
-- their outcomes. The key is made by the first call.
create table taskledger.fence_key (
  key bytea not null check (octet_length(key) = 32));

create unique index fence_key_once on taskledger.fence_key ((true));

comment on table taskledger.fence_key is
  'The key that seals the fences of attempts over HTTP. A process that knows it, and has a token, can end attempts '
  'that were given to the same token.';

-- Runs with its owner's rights: no role reads the table. Locks the row that it inserts.
-- +goose StatementBegin
create function taskledger_internal.fence_key() returns bytea
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.fence_key() is
  'Returns the key that seals fences, and makes it if there is none.';

-- One row for each process of a worker over HTTP whose heartbeat has reached a different process of serve, which did
-- not give it the tasks.
create table taskledger.remote_session (
  name  text collate "C" primary key check (octet_length(name) <= 200), -- the token's name, a slash, the session
  until timestamptz not null,
  holds text[] not null check (cardinality(holds) <= 10000))              -- numbers of attempts
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

comment on table taskledger.remote_session is
  'What a worker over HTTP holds by its last heartbeat, until until: the process that gave it the tasks reads it '
  'before it counts them as lost.';

-- Runs with its owner's rights: a role with the privilege DELETE may lock the whole table. Locks the session's row, and
-- skips rows that another transaction has locked. Reads the whole small table. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.hold_session(name text, holds text[], term_ms bigint) returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.hold_session(text, text[], bigint) is
  'Records the attempts that a worker over HTTP holds. Removes the rows that ended an hour ago.';

-- Runs with its owner's rights: no role reads the table. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.session_holds_ms(name text, hold text) returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce((
    select greatest(0, extract(epoch from s.until - clock_timestamp()) * 1000)::bigint
      from taskledger.remote_session s
     where s.name = session_holds_ms.name and session_holds_ms.hold = any (s.holds)), 0);
end;
-- +goose StatementEnd

comment on function taskledger_internal.session_holds_ms(text, text) is
  'Returns for how many milliseconds a worker over HTTP still holds an attempt by its last heartbeat, 0 if it '
  'does not.';
