-- Creates the tables of the floor. Their event has the columns and indexes of taskledger.event in commit 3f4d70b, so
-- later additions to the ledger are not part of the floor. No parameters.
create schema floor;
create type floor.event_type as enum ('enqueued', 'succeeded');
create table floor.event (
  xid         xid8 not null default pg_current_xact_id(),
  position    bigint not null generated always as identity,
  version     integer not null,
  attempt     integer not null,
  shard       smallint not null,
  type        floor.event_type not null,
  recorded_at timestamptz not null default clock_timestamp(),
  kind        text not null collate "C",
  biz_id      text not null collate "C",
  actor       text,
  data        json,
  meta        json,
  primary key (kind, biz_id, version),
  unique (position));
create index event_xid_position on floor.event (xid, position);
create table floor.kind_limit (kind text primary key collate "C");
create table floor.cursor (reader text primary key, seen pg_snapshot not null);
insert into floor.cursor values ('relay', pg_current_snapshot()), ('projector', pg_current_snapshot());
create table floor.task (
  kind       text not null collate "C",
  biz_id     text not null collate "C",
  version    integer not null,
  state      floor.event_type not null,
  updated_at timestamptz not null,
  data       json,
  primary key (kind, biz_id)) with (fillfactor = 50)
