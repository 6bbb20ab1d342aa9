-- The checks of an enqueue in SQL: each refuses what package ledger refuses in Go, as invalid_parameter_value.
-- Owner: package ledger; no tables. Called by taskledger.enqueue and enqueue_many.

-- +goose Up

-- +goose StatementBegin
create function taskledger.check_key(kind text, biz_id text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if kind is null or octet_length(kind) > 128 or kind !~ '^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$' then
    raise exception 'taskledger: invalid kind %', coalesce(quote_literal(left(kind, 140)), 'null')
      using errcode = 'invalid_parameter_value',
            hint = 'a kind is 1 to 128 bytes of A-Z a-z 0-9 _ - in words joined by dots';
  end if;
  if biz_id is null or octet_length(biz_id) not between 1 and 255 or biz_id ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'taskledger: invalid biz_id %', coalesce(quote_literal(left(biz_id, 260)), 'null')
      using errcode = 'invalid_parameter_value',
            hint = 'a biz_id is 1 to 255 bytes of UTF-8 without control characters';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger.check_key(text, text) is
  'Internal: raises an error for a key that Go refuses, with the rule that it breaks.';

-- +goose StatementBegin
create function taskledger.check_actor(actor text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if octet_length(actor) > 255 or actor ~ '[\u0001-\u001f\u007f-\u009f]' then
    raise exception 'taskledger: invalid actor %', quote_literal(left(actor, 260))
      using errcode = 'invalid_parameter_value',
            hint = 'an actor is at most 255 bytes of UTF-8 without control characters';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger.check_actor(text) is 'Internal: raises an error for an actor that Go refuses.';

-- +goose StatementBegin
create function taskledger.check_nesting(name text, text text) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  brackets text;
begin
  if coalesce(octet_length(text), 0) <= 1024 then
    return; -- one level takes two bytes
  end if;
  brackets := regexp_replace(text, '"(?:[^"\\]|\\.)*"', '', 'g');
  brackets := translate(regexp_replace(brackets, '[^][{}]', '', 'g'), '{}', '[]');
  for i in 1..512 loop
    exit when brackets = '';
    brackets := replace(brackets, '[]', ''); -- one level less
  end loop;
  if brackets <> '' then
    raise exception 'taskledger: invalid %: it nests more than 512 deep', name
      using errcode = 'invalid_parameter_value';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger.check_nesting(text, text) is
  'Internal: raises an error for JSON that nests deeper than 512, which the decoders of the workers refuse.';

-- Delays are compared as double precision, rounded to the microsecond, so that the verdict is that of
-- ledger.ParseRetryPolicy in Go. taskledger.check_meta handles the error for a number out of that range.
-- Operator -> takes the last of several members with the same name, as Go does.
-- +goose StatementBegin
create function taskledger.check_retry(retry json) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  longest constant double precision := 366 * 24 * 3600 * 1e6;  -- microseconds
  name text;
  value json;
  number double precision;
begin
  if json_typeof(retry) <> 'object' then
    raise exception 'taskledger: invalid meta: retry must be a JSON object, not %', json_typeof(retry)
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
      raise exception 'taskledger: invalid meta: retry: % must not be %',
          quote_literal(left(name, 80)), left(value::text, 80)
        using errcode = 'invalid_parameter_value',
              hint = 'ladder: at most 100 delays; unit, max: delays over 0; attempts: 1 to 1000000; jitter: 0 to 1; '
                     'a delay is a number of seconds up to 31622400';
    end if;
  end loop;
  if retry -> 'ladder' -> 0 is not null and json_typeof(retry -> 'unit') = 'number' then
    raise exception 'taskledger: invalid meta: retry: unit must not stand beside a ladder'
      using errcode = 'invalid_parameter_value';
  end if;
end
$$;
-- +goose StatementEnd

comment on function taskledger.check_retry(json) is 'Internal: raises an error for a retry policy that Go refuses.';

-- +goose StatementBegin
create function taskledger.check_meta(meta json, args json) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  if meta is null or json_typeof(meta) = 'null' then
    return;
  end if;
  if json_typeof(meta) <> 'object' then
    raise exception 'taskledger: invalid meta: it must be a JSON object, not %', json_typeof(meta)
      using errcode = 'invalid_parameter_value';
  end if;
  declare
    member record;
  begin
    for member in -- the last of several with the same name counts
      select distinct on (m.key) m.key, m.value, json_typeof(m.value) as type
        from json_each(meta) with ordinality as m(key, value, i)
       order by m.key, m.i desc
    loop
      if member.key in ('traceparent', 'tracestate', 'causation', 'encoding')
          and member.type not in ('string', 'null') then
        raise exception 'taskledger: invalid meta: % must be a string, not %', member.key, member.type
          using errcode = 'invalid_parameter_value';
      elsif member.key = 'retry' and member.type <> 'null' then
        perform taskledger.check_retry(member.value);
      elsif member.key in ('run_at', 'start_by', 'finish_by') then
        raise exception 'taskledger: invalid meta: % is an argument of its own', member.key
          using errcode = 'invalid_parameter_value';
      elsif member.key = 'tags' and (member.type not in ('array', 'null') or member.type = 'array' and
          exists (select from json_array_elements(member.value) t where json_typeof(t) not in ('string', 'null'))) then
        raise exception 'taskledger: invalid meta: tags must be an array of strings'
          using errcode = 'invalid_parameter_value';
      end if;
    end loop;
    if coalesce(meta->>'encoding', '') not in ('', 'base64') then
      raise exception 'taskledger: invalid meta: unknown encoding %', quote_literal(left(meta->>'encoding', 80))
        using errcode = 'invalid_parameter_value', hint = 'base64, or none for JSON';
    end if;
    if meta->>'encoding' = 'base64' and json_typeof(args) <> 'null' and (json_typeof(args) <> 'string' or
        translate(args #>> '{}', E'\r\n', '') !~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$') then
      raise exception 'taskledger: invalid args: they must be a string of base64, as meta says'
        using errcode = 'invalid_parameter_value';
    end if;
  exception when untranslatable_character or invalid_text_representation or numeric_value_out_of_range then
    -- Escapes that PostgreSQL stores but cannot decode: a query over meta would fail at this event.
    -- Or a number of retry that is no double precision.
    raise exception 'taskledger: invalid meta or args: %', sqlerrm using errcode = 'invalid_parameter_value';
  end;
end
$$;
-- +goose StatementEnd

comment on function taskledger.check_meta(json, json) is
  'Internal: raises an error for a meta that Go cannot read, and for args that are not encoded as their meta says.';

-- +goose StatementBegin
create function taskledger.check_times(run_at timestamptz, run_in interval, start_by timestamptz, finish_by timestamptz)
returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  moment record;
begin
  if run_in < interval '0' then
    raise exception 'taskledger: invalid run_in %: it is negative', run_in using errcode = 'invalid_parameter_value';
  end if;
  if run_in > interval '292 years' then
    raise exception 'taskledger: invalid run_in %: it is over 292 years', run_in
      using errcode = 'invalid_parameter_value';
  end if;
  if run_in is not null and run_at is not null then
    raise exception 'taskledger: invalid run_in %: run_at is given too', run_in
      using errcode = 'invalid_parameter_value';
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

comment on function taskledger.check_times(timestamptz, interval, timestamptz, timestamptz) is
  'Internal: raises an error for times that Go refuses, by name.';
