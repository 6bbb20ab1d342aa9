-- Read models, derived from the events by the projector; they can be dropped and rebuilt.

-- +goose Up

-- The current state of every task. Updates are HOT: no index holds a column that the usual
-- way of a task (available, running, succeeded) changes, and half of each page is kept free,
-- since tasks enqueued together finish together. (At fillfactor 80 three of four updates of a
-- backlog were not HOT: more than twice the WAL, and heap and index together were larger.)
create table taskledger.task (
  kind        text collate "C" not null,
  biz_id      text collate "C" not null,
  shard       smallint not null,
  state       taskledger.task_state not null,
  aside       boolean not null,       -- neither available, running nor succeeded: what an operator looks for
  version     integer not null,
  attempt     integer not null,
  failures    integer not null,
  enqueued_at timestamptz not null,
  updated_at  timestamptz not null,
  error       text,                   -- of the last failed or buried event
  fingerprint text collate "C",       -- of the error that a dead task is dead of; else null
  due_at      timestamptz,            -- when a task that is scheduled or retrying is released; else null
  primary key (kind, biz_id))
  with (fillfactor = 50);

create index task_aside on taskledger.task (kind, biz_id) where aside;

-- Dead tasks by what they are dead of. Among a million scheduled ones they would be hard to find.
create index task_dead on taskledger.task (fingerprint, kind, biz_id) where fingerprint is not null;

-- Tasks by kind and state as running totals. Append-only: the row with the highest n counts.
create table taskledger.task_count (
  kind  text collate "C" not null,
  state taskledger.task_state not null,
  n     bigint not null,
  value bigint not null,
  primary key (kind, state, n))
  with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
