-- What happens later by itself: delayed tasks, retries, deadlines.

-- +goose Up

-- One row for each event that is to be appended when its time has come. reason says which: due
-- (of scheduled and snoozed) and retry append released, start_by and finish_by append expired.
-- due and retry are about the event that set the timer (version) and mean nothing once the task
-- has moved on; start_by and finish_by are about the task.
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
  reason  text collate "C" not null check (reason in ('due', 'retry', 'start_by', 'finish_by')),
  primary key (due_at, kind, biz_id, version, reason))
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
-- to the microsecond. The rest stays as it was, byte for byte. Null: no member.
-- +goose StatementBegin
create function taskledger.with_moment(object text, name text, moment timestamptz) returns text
language sql immutable parallel safe
return case when moment is null then object
  else '{"' || name || '":"' || to_char(moment at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') || '"'
    || case when coalesce(object, '{}') ~ '^\s*\{\s*\}\s*$' then '}' else ',' || regexp_replace(object, '^\s*\{', '') end
end;
-- +goose StatementEnd

-- The meta of a task's first event, with the times that it was given.
-- +goose StatementBegin
create function taskledger.with_times(meta text, run_at timestamptz, start_by timestamptz, finish_by timestamptz) returns text
language sql immutable parallel safe
return taskledger.with_moment(taskledger.with_moment(taskledger.with_moment(
  meta, 'finish_by', finish_by), 'start_by', start_by), 'run_at', run_at);
-- +goose StatementEnd

-- Refuses times that Go would refuse, by name.
-- +goose StatementBegin
create function taskledger.check_times(run_at timestamptz, run_in interval, start_by timestamptz, finish_by timestamptz) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  moment record;
begin
  if run_in < interval '0' then
    raise exception 'taskledger: invalid run_in %: it is negative', run_in using errcode = 'invalid_parameter_value';
  end if;
  if run_in > interval '292 years' then
    raise exception 'taskledger: invalid run_in %: it is over 292 years', run_in using errcode = 'invalid_parameter_value';
  end if;
  if run_in is not null and run_at is not null then
    raise exception 'taskledger: invalid run_in %: run_at is given too', run_in using errcode = 'invalid_parameter_value';
  end if;
  for moment in values ('run_at', run_at), ('start_by', start_by), ('finish_by', finish_by) loop
    if moment.column2 >= '9999-01-01 00:00:00+00' or moment.column2 = '-infinity' then
      raise exception 'taskledger: invalid % %', moment.column1, moment.column2
        using errcode = 'invalid_parameter_value', hint = 'a moment before the year 9999; null for never';
    end if;
  end loop;
end
$$;
-- +goose StatementEnd

-- The moments and the delay of an entry of taskledger.enqueue_many, checked; what is not a
-- moment or an interval is refused by name.
-- +goose StatementBegin
create function taskledger.times_of(entry json, out run_at timestamptz, out run_in interval, out start_by timestamptz, out finish_by timestamptz)
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
  when datetime_field_overflow or invalid_datetime_format or interval_field_overflow or invalid_time_zone_displacement_value then
    raise exception 'taskledger: invalid % %', name, quote_literal(left(entry->>name, 80)) using errcode = 'invalid_parameter_value';
end
$$;
-- +goose StatementEnd

-- Sets the timers of a task that was just enqueued. A deadline that has passed is due now.
-- +goose StatementBegin
create function taskledger.set_timers(kind text, biz_id text, run_at timestamptz, start_by timestamptz, finish_by timestamptz) returns void
language sql volatile
begin atomic
  insert into taskledger.timer (due_at, kind, biz_id, version, reason)
  select taskledger.due_at(null, t.at), set_timers.kind, set_timers.biz_id, 1, t.reason
    from (values (set_timers.run_at, 'due'), (set_timers.start_by, 'start_by'), (set_timers.finish_by, 'finish_by')) t(at, reason)
   where t.at is not null;
end;
-- +goose StatementEnd
