-- Creates the task table of textbooks, with the index of its claim. No parameters.
create table task (
  id          bigint generated always as identity primary key,
  kind        text not null,
  biz_id      text not null,
  args        json not null,
  status      text not null default 'pending',
  attempts    integer not null default 0,
  created_at  timestamptz not null default now(),
  started_at  timestamptz,
  finished_at timestamptz,
  unique (kind, biz_id));
create index task_pending on task (id) where status = 'pending'
