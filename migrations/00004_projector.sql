-- The projections: the current state of the tasks, derived from the events. They can be dropped and rebuilt.
-- Owner: package projector.
--
--   task           written and read by projector
--   task_count     written and read by projector
--   kind_stats     written and read by projector
--   kind_hour      written and read by projector
--   illegal_event  written and read by projector
--
-- Other packages and programs read the views tasks, task_counts and kind_minutes; task_totals for the total of one kind
-- and state; lingering_tasks for unfinished tasks. A rebuild creates new tables with the columns, indexes, settings and
-- rights of the old ones, swaps them in, and recreates the views that depend on them.

-- +goose Up

-- Updates are HOT: no index contains a column that ordinary events (available, running, succeeded) change, and half of
-- each page stays free, since tasks enqueued together finish together. At fillfactor 80, three of four updates of a
-- backlog were not HOT: more than twice the WAL, and a larger heap and index.
-- The columns that ordinary events change are adjacent: the WAL of an update contains everything between the first and
-- the last byte that differs. Larger columns come first, to avoid padding.
create table taskledger.task (
  enqueued_at timestamptz not null,
  updated_at  timestamptz not null,
  state       taskledger.task_state not null,
  version     integer not null,
  attempt     integer not null,
  failures    integer not null,
  shard       smallint not null,
  priority    smallint not null default 3,  -- 1 to 4: normal if the task was given none
  aside       taskledger.task_state,  -- the state, null if it is available, running or succeeded
  kind        text collate "C" not null,
  biz_id      text collate "C" not null,
  partition   text collate "C" not null default '',
  error       text,                   -- of the last failed or buried event
  fingerprint text collate "C",       -- of the error of a dead task, else null
  due_at      timestamptz,            -- when a scheduled or retrying task is released, else null
  cause       text collate "C",       -- kind/biz_id of the task whose event led to this one, else null; never updated
  -- Of the event that made the task available; null unless it has been available or running for longer than a few
  -- seconds.
  lingering   bigint,
  primary key (kind, biz_id))
  with (fillfactor = 50);

comment on table taskledger.task is
  'The current state of each task, derived from the events by the projector, which may lag behind.';

create index task_aside on taskledger.task (aside, kind, biz_id) where aside is not null;

-- Dead tasks by error.
create index task_dead on taskledger.task (fingerprint, kind, biz_id) where fingerprint is not null;

create index task_cause on taskledger.task (cause, kind, biz_id) where cause is not null;

-- A task that finishes within seconds never enters this index, so its updates stay HOT.
create index task_lingering on taskledger.task (enqueued_at, kind, biz_id) where lingering is not null;

-- The order in which tasks of one kind, priority and partition begin.
create index task_next on taskledger.task (kind, priority, partition, lingering) where lingering is not null;

create table taskledger.task_count (
  kind  text collate "C" not null,
  state taskledger.task_state not null,
  n     bigint not null,
  value bigint not null,
  primary key (kind, state, n))
  with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

comment on table taskledger.task_count is
  'The number of tasks of each kind and state. Append-only: for each kind and state, the row with the highest n '
  'counts.';

-- Append-only: each page of the projector adds its changes to the minutes, so the sum of a minute's rows counts. Rows
-- of past minutes are merged.
create table taskledger.kind_stats (
  minute    timestamptz not null,
  enqueued  bigint not null,
  started   bigint not null,
  succeeded bigint not null,
  failed    bigint not null,
  dead      bigint not null,
  cancelled bigint not null,
  kind      text collate "C" not null,
  waiting   bigint[],     -- histogram: see projector.Histogram; null: no attempt has begun
  running   bigint[],     -- histogram; null: no attempt has ended
  first_position bigint,  -- the lowest and the highest position of the tasks enqueued; null: none
  last_position  bigint)
  with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

create index kind_stats_minute on taskledger.kind_stats (minute, kind);

create index kind_stats_position on taskledger.kind_stats (last_position, minute) where last_position is not null;

comment on table taskledger.kind_stats is
  'Events by kind and minute, and histograms of waiting and running times. Append-only: add up all rows of a kind '
  'and minute. The minutes of archived tasks are merged by hour, in its first minute.';

-- kind_stats by hour, for charts of days: a month of one kind is 720 rows instead of 43,200. Appended and merged
-- together with kind_stats.
create table taskledger.kind_hour (
  hour      timestamptz not null,
  enqueued  bigint not null,
  started   bigint not null,
  succeeded bigint not null,
  failed    bigint not null,
  dead      bigint not null,
  cancelled bigint not null,
  kind      text collate "C" not null)
  with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

create index kind_hour_hour on taskledger.kind_hour (hour, kind);

comment on table taskledger.kind_hour is
  'Events by kind and hour, without histograms: the sums of kind_stats. Append-only: add up all rows of a kind and '
  'hour.';

create table taskledger.illegal_event (
  kind     text collate "C" not null,
  biz_id   text collate "C" not null,
  version  integer not null,
  reason   text not null,
  found_at timestamptz not null default clock_timestamp(),
  primary key (kind, biz_id, version));

comment on table taskledger.illegal_event is
  'Events that are not allowed after the events before them: a role with INSERT on event wrote them. Their tasks '
  'are projected without them. `taskledger discard illegal` removes the rows once an operator has removed the '
  'cause.';

create view taskledger.tasks as
select t.kind, t.biz_id, t.shard, t.state, t.aside as exceptional, t.version, t.attempt, t.failures,
       t.enqueued_at, t.updated_at, t.error, t.fingerprint, t.due_at, t.cause, t.priority, t.partition
  from taskledger.task t;

comment on view taskledger.tasks is
  'The current state of each task, as recorded by the projector, which may lag behind the events. exceptional: the '
  'state, null if it is available, running or succeeded. fingerprint: of a dead task''s error. due_at: when a '
  'scheduled or retrying task is released. cause: kind/biz_id of the task whose event led to this task. priority: 1 '
  'urgent, 2 high, 3 normal, 4 low. partition: the tenant or other group of the task, '''' for none.';

create view taskledger_internal.lingering_tasks as
select t.enqueued_at, t.kind, t.biz_id, t.shard, t.state, t.version, t.updated_at, t.lingering as position,
       t.priority, t.partition
  from taskledger.task t
 where t.lingering is not null;

comment on view taskledger_internal.lingering_tasks is
  'The available and running tasks that became available up to lingering_place, in the order of the index '
  '(enqueued_at, kind, biz_id). position: of the event that made the task available; an index of (kind, priority, '
  'partition, position) gives the order in which the tasks of a kind, a priority and a partition begin.';

create view taskledger_internal.lingering_place as
select c.mark->'listed' as place
  from (select n.mark, n.is_local
          from taskledger.cursors n
         where n.reader = 'projector'
         order by n.n desc
         limit 1) c
 where c.is_local;

comment on view taskledger_internal.lingering_place is
  'The place of the feed up to which lingering_tasks is complete (JSON); no row or null: none.';

-- Whether the list alone is enough for a reader that may find a task some seconds late. It is not while it is being
-- built from the first event.
create view taskledger_internal.lingering_is_current as
select exists (
         select from taskledger_internal.lingering_place p where (p.place->'seen'->>'top')::bigint > 0) as is_current;

comment on view taskledger_internal.lingering_is_current is
  'Whether lingering_tasks follows the projector by seconds: otherwise it is absent, of another database, or '
  'is being made.';

create view taskledger_internal.task_totals as
select c.kind, c.state, c.n, c.value as tasks from taskledger.task_count c;

comment on view taskledger_internal.task_totals is
  'Running totals of tasks by kind and state. The row with the highest n counts; it is found by the index.';

-- A loose index scan, backwards: it lands on the newest row of each total, and steps over no removed rows at the old
-- end.
create view taskledger.task_counts as
with recursive newest as (
  (select c.kind, c.state, c.value
     from taskledger.task_count c
    order by c.kind desc, c.state desc, c.n desc
    limit 1)
  union all
  select c.kind, c.state, c.value
    from newest
   cross join lateral (
     select o.kind, o.state, o.value
       from taskledger.task_count o
      where (o.kind, o.state) < (newest.kind, newest.state)
      order by o.kind desc, o.state desc, o.n desc
      limit 1) c
)
select n.kind, n.state, t.tasks
  from newest n
 cross join lateral (
   select case when n.state in ('succeeded', 'cancelled', 'expired', 'discarded')
               then n.value - taskledger_internal.archived_tasks(n.kind, n.state) else n.value end as tasks) t
 where t.tasks <> 0;

comment on view taskledger.task_counts is
  'The number of tasks of each kind and state, without zeros, as counted by the projector, and without archived tasks, '
  'which task_count includes. Its cost grows with the '
  'number of kinds, not of tasks.';

create view taskledger.kind_minutes as
select s.kind, s.minute, s.enqueued, s.started, s.succeeded, s.failed, s.dead, s.cancelled, s.waiting, s.running
  from taskledger.kind_stats s;

comment on view taskledger.kind_minutes is
  'Events by kind and minute: add up the rows. Minutes of archived tasks are merged by hour, in its first minute. '
  'waiting and running are histograms: the first bucket counts times '
  'below 1 ms, bucket i times from 2^((i-2)/4) to 2^((i-1)/4) ms.';

-- Runs with its owner's rights, because a role with DELETE may lock the whole table. Index: primary key.
-- +goose StatementBegin
create function taskledger_internal.remove_illegal_events(kind text, biz_id text) returns setof integer
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  return query
  delete from taskledger.illegal_event i
   where i.kind = remove_illegal_events.kind and i.biz_id = remove_illegal_events.biz_id
  returning i.version;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.remove_illegal_events(text, text) is
  'Removes the events of a task that do not fold from the record, and returns their versions.';

-- Runs with its owner's rights, as above. Locks the rows that it merges. No other transaction writes them, because the
-- caller has appended the projector's cursor row. Indexes: kind_stats_minute, kind_hour_hour.
-- +goose StatementBegin
create function taskledger_internal.merge_kind_stats(since timestamptz, before timestamptz) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
  with gone as (
    delete from taskledger.kind_stats s
     using (
       select m.minute, m.kind
         from taskledger.kind_stats m
        where m.minute >= since and m.minute < before
        group by m.minute, m.kind
       having count(*) > 1) many
     where s.minute = many.minute and s.kind = many.kind
    returning s.*
  )
  insert into taskledger.kind_stats
         (minute, kind, enqueued, started, succeeded, failed, dead, cancelled, waiting, running, first_position,
          last_position)
  select t.minute, t.kind, t.enqueued, t.started, t.succeeded, t.failed, t.dead, t.cancelled,
         (select array_agg(b.n order by b.i)
            from (
             select u.i, sum(u.n)::bigint as n
               from gone g
              cross join lateral unnest(g.waiting) with ordinality u(n, i)
              where g.minute = t.minute and g.kind = t.kind
              group by u.i) b),
         (select array_agg(b.n order by b.i)
            from (
             select u.i, sum(u.n)::bigint as n
               from gone g
              cross join lateral unnest(g.running) with ordinality u(n, i)
              where g.minute = t.minute and g.kind = t.kind
              group by u.i) b),
         t.first_position, t.last_position
    from (
     select g.minute, g.kind, sum(g.enqueued) as enqueued, sum(g.started) as started, sum(g.succeeded) as succeeded,
            sum(g.failed) as failed, sum(g.dead) as dead, sum(g.cancelled) as cancelled,
            min(g.first_position) as first_position, max(g.last_position) as last_position
       from gone g
      group by g.minute, g.kind) t;

  with gone as (
    delete from taskledger.kind_hour s
     using (
       select m.hour, m.kind
         from taskledger.kind_hour m
        where m.hour >= date_bin('1 hour', since, 'epoch') and m.hour < before
        group by m.hour, m.kind
       having count(*) > 1) many
     where s.hour = many.hour and s.kind = many.kind
    returning s.*
  )
  insert into taskledger.kind_hour (hour, kind, enqueued, started, succeeded, failed, dead, cancelled)
  select g.hour, g.kind, sum(g.enqueued), sum(g.started), sum(g.succeeded), sum(g.failed), sum(g.dead),
         sum(g.cancelled)
    from gone g
   group by g.hour, g.kind;
end;
-- +goose StatementEnd

comment on function taskledger_internal.merge_kind_stats(timestamptz, timestamptz) is
  'Merges the rows of kind_stats of each kind and minute in a range of minutes that have passed, and the rows of '
  'kind_hour of each kind and hour in that range.';

-- Of an hour before archived_before, one row of a kind remains, with the hour's first minute: verify compares no
-- minutes there, and the sums still equal kind_hour. A late event adds a row, which a later call merges. Minutes of the
-- last two days remain, for charts. The projector may merge rows at the same time: each row is deleted once, and locked
-- ones stay. Runs with its owner's rights, as above. Index: kind_stats_minute, one search for each hour passed over.
-- +goose StatementBegin
create function taskledger_internal.merge_minutes(since timestamptz) returns timestamptz
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.merge_minutes(timestamptz) is
  'Merges the minutes of the first hour after a moment, or of the first of all, whose tasks may have been archived, in '
  'kind_stats. Returns its last minute; null: there is none.';

-- No other transaction writes these rows: the tasks have ended, and the projector has read all their events
-- (archivable, 00023_archive.sql). Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.forget_tasks(kinds text[], biz_ids text[], tags text[], positions bigint[])
returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.forget_tasks(text[], text[], text[], bigint[]) is
  'Removes archived tasks, by their keys, and their tags, by the positions of their first events.';

-- The rows become what a rebuild would create: the projector has read all events of the tasks (erase_tasks,
-- 00025_erasure.sql). Indexes: primary keys.
-- +goose StatementBegin
create function taskledger_internal.erase_projected(kinds text[], biz_ids text[], fingerprint text, tags text[],
                                                    positions bigint[])
returns void
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
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
-- +goose StatementEnd

comment on function taskledger_internal.erase_projected(text[], text[], text, text[], bigint[]) is
  'Removes the texts of erased tasks from the projection, and their tags, by the positions of their first events.';

-- Producers can write any JSON.
-- +goose StatementBegin
create function taskledger_internal.tags_of(meta json) returns setof text
language plpgsql immutable rows 2 set search_path = pg_catalog, pg_temp as $$
begin
  if strpos(meta::text, '"tags"') = 0 and strpos(meta::text, '\u') = 0 then
    return;
  end if;
  return query select distinct t from json_array_elements_text(meta -> 'tags') t where t <> '';
exception when data_exception then
  return;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.tags_of(json) is
  'Returns the tags in the meta of a first event, each once.';
