-- What happens later by itself: delayed tasks, retries, deadlines.

-- +goose Up

-- One row for each event that is to be appended when its time has come: released for what is
-- scheduled or waits for a retry, expired for a deadline. released is about the event that set
-- the timer (version) and means nothing once the task has moved on; expired is about the task.
-- Written in the transaction that appends the event, which also says the time; so this table
-- could be made again from the events.
--
-- No row is ever inserted with a due_at below the database's clock at the insert, read after
-- the inserting transaction has got its xid: the scheduler's marks rest on it. Rows leave at the
-- low end of the index, and under a snapshot held by somebody their entries stay there.
create table taskledger.timer (
  due_at  timestamptz not null,
  kind    text collate "C" not null,
  biz_id  text collate "C" not null,
  version integer not null,
  type    taskledger.event_type not null check (type in ('released', 'expired')),
  primary key (due_at, kind, biz_id, version, type))
  with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- When something is due that was asked for after some microseconds (null: see at), or at a
-- moment; never before now. The database's clock decides, wherever the question comes from.
-- +goose StatementBegin
create function taskledger.due_at(after_us bigint, at timestamptz) returns timestamptz
language sql volatile
return case
  when at is not null then greatest(at, clock_timestamp())
  when after_us is not null then clock_timestamp() + after_us * interval '1 microsecond'
end;
-- +goose StatementEnd

-- A JSON object (null: an empty one) with one more member in front: a moment, RFC 3339 in UTC
-- to the microsecond. The rest stays as it was, byte for byte.
-- +goose StatementBegin
create function taskledger.with_moment(object text, name text, moment timestamptz) returns text
language sql immutable parallel safe
return '{"' || name || '":"' || to_char(moment at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '"'
  || case when coalesce(object, '{}') ~ '^\s*\{\s*\}\s*$' then '}' else ',' || regexp_replace(object, '^\s*\{', '') end;
-- +goose StatementEnd
