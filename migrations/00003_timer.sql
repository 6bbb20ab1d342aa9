-- Timers: delayed tasks, retries, deadlines.
-- Owner: package ledger.
--
--   timer  inserted by ledger and taskledger.enqueue; read and deleted by the scheduler in workers

-- +goose Up

-- reason selects the event that the scheduler appends: due (after scheduled and snoozed) and retry append
-- released; start_by and finish_by append expired.
-- due and retry belong to the event that set the timer (version): they have no effect once the task has
-- another event. start_by and finish_by belong to the task.
-- The transaction that appends the event writes the row, and the event holds the time too: this table
-- can be made again from the events.
--
-- No row is inserted with a due_at below the database's clock at the insert, read after the inserting
-- transaction has got its xid: the scheduler's marks rest on it. Rows leave at the low end of the index,
-- and their entries stay there while another transaction holds an old snapshot.
create table taskledger.timer (
  due_at  timestamptz not null,
  kind    text collate "C" not null,
  biz_id  text collate "C" not null,
  version integer not null,
  reason  text collate "C" not null check (reason in ('due', 'retry', 'start_by', 'finish_by')),
  primary key (due_at, kind, biz_id, version, reason))
  with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

comment on table taskledger.timer is
  'One row for each event that the scheduler appends at due_at: the release of a task, or its expiry.';

-- +goose StatementBegin
create function taskledger.due_at(after_us bigint, at timestamptz) returns timestamptz
language sql volatile
return case
  when at is not null then greatest(at, clock_timestamp())
  when after_us is not null then clock_timestamp() + after_us * interval '1 microsecond'
end;
-- +goose StatementEnd

comment on function taskledger.due_at(bigint, timestamptz) is
  'Internal: returns the moment at, or else the moment after_us microseconds from now, never before now, '
  'by the database''s clock.';

-- The other members stay as they are, byte for byte.
-- +goose StatementBegin
create function taskledger.with_moment(object text, name text, moment timestamptz) returns text
language sql immutable parallel safe
return case when moment is null then object
  else '{"' || name || '":"' || to_char(moment at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '"'
    || case when coalesce(object, '{}') ~ '^\s*\{\s*\}\s*$' then '}'
            else ',' || regexp_replace(object, '^\s*\{', '') end
end;
-- +goose StatementEnd

comment on function taskledger.with_moment(text, text, timestamptz) is
  'Internal: returns a JSON object (null: an empty one) with a first member added: '
  'a moment as RFC 3339 in UTC to the microsecond. A null moment adds none.';

-- +goose StatementBegin
create function taskledger.with_times(meta text, run_at timestamptz, start_by timestamptz, finish_by timestamptz)
returns text
language sql immutable parallel safe
return taskledger.with_moment(taskledger.with_moment(taskledger.with_moment(
  meta, 'finish_by', finish_by), 'start_by', start_by), 'run_at', run_at);
-- +goose StatementEnd

comment on function taskledger.with_times(text, timestamptz, timestamptz, timestamptz) is
  'Internal: returns the meta of a task''s first event with its times added.';

-- +goose StatementBegin
create function taskledger.times_of(entry json, out run_at timestamptz, out run_in interval,
                                    out start_by timestamptz, out finish_by timestamptz)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  name text;
begin
  name := 'run_at';    run_at := (entry->>name)::timestamptz;
  name := 'run_in';    run_in := (entry->>name)::interval;
  name := 'start_by';  start_by := (entry->>name)::timestamptz;
  name := 'finish_by'; finish_by := (entry->>name)::timestamptz;
  perform taskledger.check_times(run_at, run_in, start_by, finish_by);
exception
  when datetime_field_overflow or invalid_datetime_format or interval_field_overflow
    or invalid_time_zone_displacement_value then
    raise exception 'taskledger: invalid % %', name, quote_literal(left(entry->>name, 80))
      using errcode = 'invalid_parameter_value';
end
$$;
-- +goose StatementEnd

comment on function taskledger.times_of(json) is
  'Internal: returns the times of an entry of taskledger.enqueue_many; raises an error for an invalid one, by name.';

-- +goose StatementBegin
create function taskledger.set_timers(kind text, biz_id text, run_at timestamptz, start_by timestamptz,
                                      finish_by timestamptz) returns void
language sql volatile
begin atomic
  insert into taskledger.timer (due_at, kind, biz_id, version, reason)
  select taskledger.due_at(null, t.at), set_timers.kind, set_timers.biz_id, 1, t.reason
    from (values (set_timers.run_at, 'due'), (set_timers.start_by, 'start_by'),
                 (set_timers.finish_by, 'finish_by')) t(at, reason)
   where t.at is not null;
end;
-- +goose StatementEnd

comment on function taskledger.set_timers(text, text, timestamptz, timestamptz, timestamptz) is
  'Internal: sets the timers of a new task. A deadline that has passed is due now.';
