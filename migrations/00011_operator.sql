-- Operators: the kinds that are paused.
-- Owner: package workers/operator.
--
--   pause  written and read by operator; the deliveries of a receiver that is gone are paused by package webhook
--
-- Workers read the view paused_kinds.

-- +goose Up

create table taskledger.pause (
  kind   text collate "C" primary key,
  since  timestamptz not null default clock_timestamp(),
  actor  text not null,
  reason text not null,
  check (since between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'));

comment on table taskledger.pause is 'The kinds that an operator has paused: no worker starts their tasks.';

create view taskledger.paused_kinds as
select p.kind, p.since, p.actor, p.reason from taskledger.pause p;

comment on view taskledger.paused_kinds is 'The kinds whose tasks no worker starts, since when, by whom and why.';

-- With its owner's rights: a role with the privilege DELETE may lock the whole table. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.remove_pause(kind text) returns setof text
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  delete from taskledger.pause p where p.kind = remove_pause.kind returning p.kind;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.remove_pause(text) is
  'Ends the pause of a kind, and returns the kind if it was paused.';

-- A receiver of webhooks that has answered 410 Gone gets no more requests until an operator resumes their kind. With
-- its owner's rights: the login to which the receiver's subscriber belongs may not pause any other kind. Index: primary
-- keys of pause and cursor.
-- +goose StatementBegin
create function taskledger_internal.pause_receiver(receiver text) returns boolean
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.pause_receiver(text) is
  'Pauses the deliveries of a receiver of webhooks that has answered 410 Gone, unless they are paused.';

-- Locks nothing. Indexes: primary keys. On task_count, a loose scan that goes backwards, so that it lands on the newest
-- row of each total. On task, at most max_aged rows of a kind whose totals are no higher, else none. Without jit: the
-- estimated cost grows with the number of kinds, and PostgreSQL would compile the query at each execution.
-- +goose StatementBegin
create function taskledger_internal.unhandled_kinds(max_aged bigint)
returns table (kind text, waiting bigint, oldest_ms bigint)
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
#variable_conflict use_column
begin
  return query
  with recursive kinds as (
    (select c.kind from taskledger.task_totals c order by c.kind desc limit 1)
    union all
    select (select c.kind from taskledger.task_totals c where c.kind < k.kind order by c.kind desc limit 1)
      from kinds k
     where k.kind is not null
  ), handled as (
    select distinct w.kind from taskledger.worker_kinds w
  )
  select k.kind, waiting.tasks,
         coalesce(case when (
           select sum(newest.tasks)
             from unnest(enum_range(null::taskledger.task_state)) s(state)
            cross join lateral (
              select c.tasks
                from taskledger.task_totals c
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
          from taskledger.task_totals c
         where c.kind = k.kind and c.state = s.state
         order by c.n desc
         limit 1) newest) waiting
   where waiting.tasks > 0 and not exists (select from handled h where h.kind = k.kind);
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.unhandled_kinds(bigint) is
  'Returns the kinds with tasks in the projection that are available or running, and no live worker: the '
  'number of these tasks, and how many milliseconds the oldest has been so, -1 for a kind with more than max_aged '
  'tasks in all.';

-- A task is late if it became available before older_than ago: the projection has more available tasks of the kind than
-- the newer events account for. So no task is searched for: events are read backwards from the newest until each
-- available task is met. These are few events while workers keep up, and never events older than older_than. All
-- statements of a stable function share one snapshot. Locks nothing. Indexes: (position), backwards; the primary key of
-- task for each event that made a task available, if its kind still lacks tasks; of task_count a row of each kind.
-- Without jit: see feed_page.
-- +goose StatementBegin
create function taskledger_internal.unbegun_kinds(older_than interval, max_aged bigint)
returns table (kind text, waiting bigint, late bigint, oldest_at timestamptz)
language plpgsql stable set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
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
    from (select distinct w.kind from taskledger.worker_kinds w) k
   cross join lateral (
     select t.tasks from taskledger.task_totals t
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
-- +goose StatementEnd

comment on function taskledger_internal.unbegun_kinds(interval, bigint) is
  'Returns the kinds with live workers that are not paused and have tasks that became available before '
  'older_than ago: the available tasks as the projector has counted them, how many of these are so old, and when the '
  'oldest became available, null for a kind with more than max_aged tasks in all.';
