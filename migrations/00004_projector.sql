-- The projections: what the tasks are now, derived from the events. They can be dropped and rebuilt.
-- Owner: package projector.
--
--   task        written and read by projector
--   task_count  written and read by projector
--   illegal_event  written and read by projector
--
-- Other packages and programs read the views tasks and task_counts. The view task_totals is for statements
-- that need the total of one kind and state, and lingering_tasks is for those that need the unfinished tasks.

-- +goose Up

-- Updates are HOT: no index holds a column that the usual events (available, running, succeeded) change,
-- and half of each page is kept free, since tasks enqueued together finish together.
-- At fillfactor 80 three of four updates of a backlog were not HOT: more than twice the WAL, and heap and
-- index together were larger.
create table taskledger.task (
  kind        text collate "C" not null,
  biz_id      text collate "C" not null,
  shard       smallint not null,
  state       taskledger.task_state not null,
  aside       boolean not null,       -- the state is neither available, running nor succeeded
  version     integer not null,
  attempt     integer not null,
  failures    integer not null,
  enqueued_at timestamptz not null,
  updated_at  timestamptz not null,
  error       text,                   -- of the last failed or buried event
  fingerprint text collate "C",       -- of the error of a dead task, else null
  due_at      timestamptz,            -- when a scheduled or retrying task is released, else null
  cause       text collate "C",       -- kind/biz_id of the task whose event led to this one, else null; never updated
  lingering   boolean not null default false, -- available or running for longer than a few seconds
  primary key (kind, biz_id))
  with (fillfactor = 50);

comment on table taskledger.task is
  'The current state of each task, derived from the events by the projector, which may lag behind.';

create index task_aside on taskledger.task (kind, biz_id) where aside;

-- Dead tasks by error: task_aside would find them only among all scheduled ones.
create index task_dead on taskledger.task (fingerprint, kind, biz_id) where fingerprint is not null;

create index task_cause on taskledger.task (cause, kind, biz_id) where cause is not null;

-- A task that finishes soon is never in it, so its updates stay HOT.
create index task_lingering on taskledger.task (enqueued_at, kind, biz_id) where lingering;

create table taskledger.task_count (
  kind  text collate "C" not null,
  state taskledger.task_state not null,
  n     bigint not null,
  value bigint not null,
  primary key (kind, state, n))
  with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

comment on table taskledger.task_count is
  'The number of tasks of each kind and state. Append-only: of each kind and state the row with the highest n counts.';

create table taskledger.illegal_event (
  kind     text collate "C" not null,
  biz_id   text collate "C" not null,
  version  integer not null,
  reason   text not null,
  found_at timestamptz not null default clock_timestamp(),
  primary key (kind, biz_id, version));

comment on table taskledger.illegal_event is
  'Events that cannot follow those before them: a role with INSERT on event wrote them. Their tasks are projected as '
  'before the event. `taskledger illegal dismiss` removes rows when their cause is removed.';

create view taskledger.tasks as
select t.kind, t.biz_id, t.shard, t.state, t.aside as exceptional, t.version, t.attempt, t.failures,
       t.enqueued_at, t.updated_at, t.error, t.fingerprint, t.due_at, t.cause
  from taskledger.task t;

comment on view taskledger.tasks is
  'The current state of each task, as the projector has it, which may lag behind the events. '
  'exceptional: the state is neither available, running nor succeeded. fingerprint: of the error of a dead task. '
  'due_at: when a scheduled or retrying task is released. cause: kind/biz_id of the task whose event led to this one.';

create view taskledger.lingering_tasks as
select t.enqueued_at, t.kind, t.biz_id from taskledger.task t where t.lingering;

comment on view taskledger.lingering_tasks is
  'Internal: the tasks that are available or running, of those that became available up to lingering_place, '
  'in the order of the index (enqueued_at, kind, biz_id).';

create view taskledger.lingering_place as
select c.mark->'listed' as place
  from (select n.mark, n.is_local
          from taskledger.cursors n
         where n.reader = 'projector'
         order by n.n desc
         limit 1) c
 where c.is_local;

comment on view taskledger.lingering_place is
  'Internal: the place of the feed up to which lingering_tasks has all unfinished tasks (JSON); no row or null: none.';

create view taskledger.task_totals as
select c.kind, c.state, c.n, c.value as tasks from taskledger.task_count c;

comment on view taskledger.task_totals is
  'Internal: running totals of tasks by kind and state. The row with the highest n counts; it is found by the index.';

-- A loose index scan that goes backwards, so that it lands on the newest row of each total and steps over none of
-- those that were removed at the old end.
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
select n.kind, n.state, n.value as tasks from newest n where n.value <> 0;

comment on view taskledger.task_counts is
  'The number of tasks of each kind and state, without zeros, as the projector has counted them. '
  'Its cost grows with the number of kinds, not of tasks.';

-- With its owner's rights: a role with the privilege DELETE may lock the whole table. Index: primary key.
-- +goose StatementBegin
create function taskledger.remove_illegal_events(kind text, biz_id text) returns setof integer
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

comment on function taskledger.remove_illegal_events(text, text) is
  'Internal: removes the events of a task that do not fold from the record, and returns their versions.';
