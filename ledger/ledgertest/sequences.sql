-- A statement that sets all sequences to their current values.
select 'select ' || coalesce(string_agg(
         format('setval(%L, %s, %L)', format('%I.%I', s.schemaname, s.sequencename),
                coalesce(s.last_value, s.start_value), s.last_value is not null),
         ', ' order by s.schemaname, s.sequencename), '')
  from pg_sequences s
