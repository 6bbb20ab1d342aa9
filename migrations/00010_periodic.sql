-- Periodic tasks: the schedules and their next firings.
-- Owner: package ledger/periodic.
--
--   schedule  written and read by periodic: the definition by operators, the position by the runner

-- +goose Up

-- The runner writes the position in the transaction that enqueues a firing's task. No time is unreadable for readers:
-- neither infinity, nor a year after 9998. There are few rows; they change a few times a minute at most and are read as
-- a whole: no index but the key, so that updates are HOT.
create table taskledger.schedule (
  name           text collate "C" primary key,
  kind           text collate "C" not null,  -- kind and args of its tasks
  args           json,
  cron           text,                       -- cron in zone,
  zone           text,
  every_ms       bigint,                     -- or an interval from anchor on,
  anchor         timestamptz,
  fixed_delay_ms bigint,                     -- or a delay after the previous task has finished
  missed         text not null,              -- one, skip or all (missed_limit at a time); '' with fixed_delay_ms
  missed_limit   integer not null,
  overlap        text not null,              -- allow or skip; '' with fixed_delay_ms
  paused_at      timestamptz,                -- since when it is paused, by whom and why ('': no reason), or null
  paused_by      text,
  pause_reason   text,
  revision       integer not null default 1, -- counts definitions, pauses and resumptions
  actor          text not null,              -- of the last of these
  updated_at     timestamptz not null default clock_timestamp(),
  next_at        timestamptz,                -- the next firing; null: none is left, or the task before is unfinished
  last_at        timestamptz,                -- the last firing that became a task, with that task
  last_kind      text collate "C",
  last_biz_id    text collate "C",
  passed         bigint not null default 0,  -- firings that were passed over: missed, overlapping or paused
  passed_at      timestamptz,                -- when firings were last passed over
  check (name ~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$' and octet_length(name) <= 128),
  check (num_nonnulls(cron, every_ms, fixed_delay_ms) = 1),
  check (every_ms between 1000 and 3153600000000),  -- periodic.MaxEvery
  check (fixed_delay_ms between 1000 and 3153600000000),
  check ((cron is null) = (zone is null)),
  check ((every_ms is null) = (anchor is null)),
  check (num_nonnulls(paused_at, paused_by, pause_reason) in (0, 3)),
  check (anchor between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'),
  check (paused_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'),
  check (updated_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'),
  check (next_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'),
  check (last_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'),
  check (passed_at between '1900-01-01 00:00:00+00' and '9998-12-31 00:00:00+00'))
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 200);

comment on table taskledger.schedule is 'The schedules of periodic tasks, and each schedule''s next firing.';
