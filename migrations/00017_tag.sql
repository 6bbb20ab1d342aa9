-- Tags: the tasks of each tag, the last enqueued first.
-- Owner: package projector.
--
--   task_tag  written and read by projector
--
-- The projector adds tasks that were enqueued before this migration, page by page, while it does its other work. Until
-- then, and while a projector of an older version runs, a search by tag reads events instead.

-- +goose Up

-- A page of a tag is a range of the primary key, however many tasks have the tag. A task without tags adds no row here,
-- and its events do not write to the table. A row contains no key: the event at the position does.
create table taskledger.task_tag (
  tag      text collate "C" not null,
  position bigint not null,  -- of the first event of the task
  primary key (tag, position));

comment on table taskledger.task_tag is
  'The tags of tasks, by the position of the first event. Rows are only added; a rebuild recreates them.';
