-- The checks of an enqueue in SQL. Each raises invalid_parameter_value for the input that package ledger rejects
-- in Go, with the same rule in its message. No literal changes its meaning with standard_conforming_strings, because
-- the body of a function is parsed with the settings of the session.
-- Owner: package ledger; no tables. Called by taskledger.enqueue and enqueue_many.

-- +goose Up

-- +goose StatementBegin
create function taskledger_internal.check_key(kind text, biz_id text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if kind is null or octet_length(kind) > 128 or kind !~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$' then
    raise exception 'taskledger: invalid kind %', coalesce(quote_literal(left(kind, 140)), 'null')
      using errcode = 'invalid_parameter_value',
            hint = 'a kind must be words of A-Z a-z 0-9 _ - joined by dots, 1 to 128 bytes';
  end if;
  if starts_with(kind, 'taskledger.') then
    raise exception 'taskledger: invalid kind %', quote_literal(kind)
      using errcode = 'invalid_parameter_value',
            hint = 'kinds that begin with taskledger. are reserved for taskledger';
  end if;
  if biz_id is null or octet_length(biz_id) not between 1 and 255 or biz_id ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'taskledger: invalid biz_id %', coalesce(quote_literal(left(biz_id, 260)), 'null')
      using errcode = 'invalid_parameter_value',
            hint = 'a biz_id must be 1 to 255 bytes of UTF-8 without control characters';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_key(text, text) is
  'Raises an error with the rule for a key that package ledger rejects.';

-- +goose StatementBegin
create function taskledger_internal.check_actor(actor text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if octet_length(actor) > 255 or actor ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'taskledger: invalid actor %', quote_literal(left(actor, 260))
      using errcode = 'invalid_parameter_value',
            hint = 'an actor must be at most 255 bytes of UTF-8 without control characters';
  end if;
  if starts_with(actor, 'schedule/') then
    raise exception 'taskledger: invalid actor %', quote_literal(actor)
      using errcode = 'invalid_parameter_value',
            hint = 'actors that begin with schedule/ are reserved for the firings of schedules';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_actor(text) is
  'Raises an error for an actor that package ledger rejects.';

-- +goose StatementBegin
create function taskledger_internal.check_partition(partition text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if octet_length(check_partition.partition) > 64 or check_partition.partition ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'taskledger: invalid partition %', quote_literal(left(check_partition.partition, 80))
      using errcode = 'invalid_parameter_value',
            hint = 'a partition must be at most 64 bytes of UTF-8 without control characters';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_partition(text) is
  'Raises an error for a partition that package ledger rejects.';

-- +goose StatementBegin
create function taskledger_internal.check_nesting(name text, text text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  brackets text;
begin
  if coalesce(octet_length(text), 0) <= 1024 then
    return; -- each level takes two bytes
  end if;
  brackets := regexp_replace(text, E'"(?:[^"\\\\]|\\\\.)*"', '', 'g');
  brackets := translate(regexp_replace(brackets, '[^][{}]', '', 'g'), '{}', '[]');
  for i in 1..512 loop
    exit when brackets = '';
    brackets := replace(brackets, '[]', ''); -- one level less
  end loop;
  if brackets <> '' then
    raise exception 'taskledger: invalid %: must nest at most 512 levels deep', name
      using errcode = 'invalid_parameter_value';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_nesting(text, text) is
  'Raises an error for JSON that nests more than 512 levels deep, which workers cannot decode.';

-- Delays are compared as double precision, rounded to the microsecond, as ledger.ParseRetryPolicy does in Go.
-- taskledger_internal.check_meta handles the error for a number outside of that range.
-- Operator -> returns the last of several members with the same name, as Go does.
-- +goose StatementBegin
create function taskledger_internal.check_retry(retry json, field text default 'meta: retry') returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  longest constant double precision := 366 * 24 * 3600 * 1e6;  -- microseconds
  name text;
  value json;
  number double precision;
begin
  if json_typeof(retry) <> 'object' then
    raise exception 'taskledger: invalid %: must be a JSON object, got %', field, json_typeof(retry)
      using errcode = 'invalid_parameter_value', hint = 'for example {"ladder":[60,300],"attempts":10}';
  end if;
  for name in select distinct json_object_keys(retry) loop
    value := retry -> name;
    number := case json_typeof(value) when 'number' then value::text::double precision end;
    if not coalesce(case name
        when 'ladder' then
          case json_typeof(value) when 'array' then json_array_length(value) <= 100 and not exists (
            select from json_array_elements(value) rung
             where not case json_typeof(rung)
               when 'number' then round(rung::text::double precision * 1e6) between 0 and longest else false end) end
        when 'unit' then round(number * 1e6) between 1 and longest
        when 'max' then round(number * 1e6) between 1 and longest
        when 'attempts' then number between 1 and 1000000 and number = trunc(number)
        when 'jitter' then number between 0 and 1
        else false
      end, json_typeof(value) = 'null') then
      raise exception 'taskledger: invalid %: invalid member % with value %', field,
          quote_literal(left(name, 80)), left(value::text, 80)
        using errcode = 'invalid_parameter_value',
              hint = 'the members are ladder (at most 100 delays), unit and max (delays greater than 0), '
                     'attempts (between 1 and 1000000) and jitter (between 0 and 1); '
                     'a delay is a number of seconds up to 31622400';
    end if;
  end loop;
  if retry -> 'ladder' -> 0 is not null and json_typeof(retry -> 'unit') = 'number' then
    raise exception 'taskledger: invalid %: unit must not be set together with ladder', field
      using errcode = 'invalid_parameter_value';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_retry(json, text) is
  'Raises an error for a retry policy, in an argument or member, that package ledger rejects.';

-- +goose StatementBegin
create function taskledger_internal.check_meta(meta json, args json) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if meta is null or json_typeof(meta) = 'null' then
    return;
  end if;
  if json_typeof(meta) <> 'object' then
    raise exception 'taskledger: invalid meta: must be a JSON object, got %', json_typeof(meta)
      using errcode = 'invalid_parameter_value';
  end if;
  declare
    member record;
  begin
    for member in -- of several with the same name the last one counts
      select distinct on (m.key) m.key, m.value, json_typeof(m.value) as type
        from json_each(meta) with ordinality as m(key, value, i)
       order by m.key, m.i desc
    loop
      if member.key in ('traceparent', 'tracestate', 'causation', 'encoding')
          and member.type not in ('string', 'null') then
        raise exception 'taskledger: invalid meta: % must be a string, got %', member.key, member.type
          using errcode = 'invalid_parameter_value';
      elsif member.key = 'retry' and member.type <> 'null' then
        perform taskledger_internal.check_retry(member.value);
      elsif member.key in ('run_at', 'start_by', 'finish_by', 'after', 'pass_if_dead') then
        raise exception 'taskledger: invalid meta: must not contain %: use the argument of this name', member.key
          using errcode = 'invalid_parameter_value';
      elsif member.key = 'tags' and (member.type not in ('array', 'null') or member.type = 'array' and
          exists (select from json_array_elements(member.value) t where json_typeof(t) not in ('string', 'null'))) then
        raise exception 'taskledger: invalid meta: tags must be an array of strings'
          using errcode = 'invalid_parameter_value';
      end if;
    end loop;
    if coalesce(meta->>'encoding', '') not in ('', 'base64') then
      raise exception 'taskledger: invalid meta: encoding must be base64, got %',
          quote_literal(left(meta->>'encoding', 80))
        using errcode = 'invalid_parameter_value', hint = 'omit the encoding for JSON';
    end if;
    -- Null does not end an AND: without coalesce args would be decoded that need not be decodable.
    if coalesce(meta->>'encoding', '') = 'base64' and json_typeof(args) <> 'null' and (json_typeof(args) <> 'string' or
        translate(args #>> '{}', E'\r\n', '') !~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$') then
      raise exception 'taskledger: invalid args: must be a string of base64, because meta.encoding is base64'
        using errcode = 'invalid_parameter_value';
    end if;
  exception when untranslatable_character or invalid_text_representation or numeric_value_out_of_range then
    -- An escape that PostgreSQL can store but not decode, so that a query over meta would fail at this event.
    -- Or a number in retry that is not a double precision.
    raise exception 'taskledger: invalid meta or args: %', sqlerrm using errcode = 'invalid_parameter_value';
  end;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_meta(json, json) is
  'Raises an error for a meta that package ledger rejects, and for args without the encoding in meta.';

-- +goose StatementBegin
create function taskledger_internal.check_times(run_at timestamptz, run_in interval, start_by timestamptz,
                                                finish_by timestamptz)
returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  argument record;
begin
  if run_in < interval '0' then
    raise exception 'taskledger: invalid run_in %: must not be negative', run_in
      using errcode = 'invalid_parameter_value';
  end if;
  if run_in > interval '292 years' then
    raise exception 'taskledger: invalid run_in %: must be at most 292 years', run_in
      using errcode = 'invalid_parameter_value';
  end if;
  if run_in is not null and run_at is not null then
    raise exception 'taskledger: invalid run_in %: must not be set together with run_at', run_in
      using errcode = 'invalid_parameter_value';
  end if;
  for argument in values ('run_at', run_at), ('start_by', start_by), ('finish_by', finish_by) loop
    if argument.column2 >= taskledger_internal.end_of_time() or argument.column2 = '-infinity' then
      raise exception 'taskledger: invalid % %: must be a time before the last microsecond of the year 9998',
          argument.column1, argument.column2
        using errcode = 'invalid_parameter_value', hint = 'use null for no time';
    end if;
  end loop;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_times(timestamptz, interval, timestamptz, timestamptz) is
  'Raises an error with the name of a time that package ledger rejects.';

-- +goose StatementBegin
create function taskledger_internal.check_size(name text, setting text, text text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  most constant integer := (select s.value::integer from taskledger.setting s where s.name = check_size.setting);
begin
  if octet_length(text) > most then
    raise exception 'taskledger: invalid %: must have at most % bytes, got %', name, most, octet_length(text)
      using errcode = 'invalid_parameter_value',
            hint = case name when 'args' then 'enqueue a reference to a larger payload' else '' end;
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_size(text, text, text) is
  'Raises an error for args or meta that exceed the limit of a setting.';

-- +goose StatementBegin
create function taskledger_internal.delay_of(name text, delay text) returns interval
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  return delay::interval;
exception when datetime_field_overflow or invalid_datetime_format or interval_field_overflow then
  raise exception 'taskledger: invalid % %', name, quote_literal(left(delay, 80))
    using errcode = 'invalid_parameter_value';
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.delay_of(text, text) is
  'Returns a text as an interval; raises an error with the name of an invalid one.';

-- +goose StatementBegin
create function taskledger_internal.check_if_exists(if_exists text, after json, defer_at_most interval default null,
                                                    throttle_for interval default null) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if if_exists is null or if_exists not in ('same', 'ignore', 'replace', 'rerun', 'follow') then
    raise exception 'taskledger: invalid if_exists %: must be same, ignore, rerun, replace or follow',
        coalesce(quote_literal(left(if_exists, 80)), 'null')
      using errcode = 'invalid_parameter_value';
  elsif if_exists in ('replace', 'rerun', 'follow') and after is not null and json_typeof(after) <> 'null' then
    raise exception 'taskledger: invalid if_exists: must not be % together with after', if_exists
      using errcode = 'invalid_parameter_value';
  elsif defer_at_most is not null and if_exists not in ('replace', 'follow') then
    raise exception 'taskledger: invalid defer_at_most: must be set together with if_exists replace or follow'
      using errcode = 'invalid_parameter_value';
  elsif throttle_for is not null and if_exists not in ('rerun', 'replace', 'follow') then
    raise exception 'taskledger: invalid throttle_for: must be set together with if_exists rerun, replace or follow'
      using errcode = 'invalid_parameter_value';
  elsif not coalesce(defer_at_most between interval '0' and interval '292 years', true)
      or not coalesce(throttle_for between interval '0' and interval '292 years', true) then
    raise exception 'taskledger: invalid %: must be between 0 and 292 years',
        case when defer_at_most between interval '0' and interval '292 years' or defer_at_most is null
             then 'throttle_for' else 'defer_at_most' end
      using errcode = 'invalid_parameter_value';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_if_exists(text, json, interval, interval) is
  'Raises an error for values that package ledger rejects as the options IfExists, DeferAtMost and ThrottleFor.';

-- +goose StatementBegin
create function taskledger_internal.check_after(after json, kind text, biz_id text) returns json
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  most constant integer := 100;
  fault text;
  entry record;
  keys json[];
begin
  if after is null or json_typeof(after) = 'null' then
    return null;
  end if;
  if json_typeof(after) <> 'object' or json_typeof(after -> 'keys') is distinct from 'array' then
    fault := 'must be a JSON object with an array of keys';
  elsif exists (select from json_object_keys(after) m(name) where m.name not in ('keys', 'otherwise')) then
    fault := 'must have no members but keys and otherwise';
  elsif json_array_length(after -> 'keys') not between 1 and most then
    fault := 'must have 1 to ' || most || ' keys, got ' || json_array_length(after -> 'keys');
  elsif coalesce(after ->> 'otherwise', 'cancel') not in ('cancel', 'run', 'wait') then
    fault := 'otherwise must be cancel, run or wait';
  else
    for entry in
      select json_typeof(k.v) as type, case when json_typeof(k.v) = 'object' then k.v end as v
        from json_array_elements(after -> 'keys') k(v)
    loop
      if entry.type <> 'object' or coalesce(octet_length(entry.v ->> 'kind'), 0) not between 1 and 128
          or coalesce(octet_length(entry.v ->> 'biz_id'), 0) not between 1 and 255 then
        fault := 'each key must be an object with kind and biz_id';
      elsif entry.v ->> 'kind' = check_after.kind and entry.v ->> 'biz_id' = check_after.biz_id then
        fault := 'must not contain the task itself';
      end if;
      exit when fault is not null;
      keys := keys || json_build_object('kind', entry.v ->> 'kind', 'biz_id', entry.v ->> 'biz_id');
    end loop;
  end if;
  if fault is not null then
    raise exception 'taskledger: invalid after: %', fault
      using errcode = 'invalid_parameter_value',
            hint = 'for example {"keys":[{"kind":"coupon.send","biz_id":"order-17"}],"otherwise":"cancel"}';
  end if;
  return json_build_object('keys', array_to_json(keys), 'otherwise', coalesce(after ->> 'otherwise', 'cancel'));
exception when untranslatable_character or invalid_text_representation then
  raise exception 'taskledger: invalid after: %', sqlerrm using errcode = 'invalid_parameter_value';
end
$$;
-- +goose StatementEnd

comment on function taskledger_internal.check_after(json, text, text) is
  'Returns the predecessors of a task as its meta contains them; raises an error for predecessors that '
  'package ledger rejects.';
