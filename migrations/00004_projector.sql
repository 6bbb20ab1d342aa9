-- The projections: what the tasks are now, derived from the events. They can be dropped and rebuilt.
-- Owner: package projector.
--
--   task        written by projector; read by projector, workers (operator, reconciler, lists of dead and
--               unhandled tasks) and alarm
--   task_count  written by projector; read by projector, the view overload, workers and alarm

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
  primary key (kind, biz_id))
  with (fillfactor = 50);

comment on table taskledger.task is
  'The current state of each task, derived from the events by the projector, which may lag behind.';

create index task_aside on taskledger.task (kind, biz_id) where aside;

-- Dead tasks by error: task_aside would find them only among all scheduled ones.
create index task_dead on taskledger.task (fingerprint, kind, biz_id) where fingerprint is not null;

create index task_cause on taskledger.task (cause, kind, biz_id) where cause is not null;

create table taskledger.task_count (
  kind  text collate "C" not null,
  state taskledger.task_state not null,
  n     bigint not null,
  value bigint not null,
  primary key (kind, state, n))
  with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

comment on table taskledger.task_count is
  'The number of tasks of each kind and state. Append-only: of each kind and state the row with the highest n counts.';
