-- Returns the statement that reads a table in the order of its primary key, as JSON of key and row; no row if there is
-- no such table. Without a primary key, the row is the key.
-- $1 schema, $2 table. Locks nothing. Indexes of the catalogue.
select format('select r.key, r.row from (select %s::text as key, row_to_json(t)::text as row from %I.%I t) r
 order by r.key collate "C", r.row collate "C"',
              coalesce((
                select 'json_build_array(' || string_agg(format('t.%I', a.attname), ', ' order by k.i) || ')'
                  from pg_catalog.pg_index i
                 cross join lateral unnest(i.indkey::smallint[]) with ordinality k(attnum, i)
                  join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum
                 where i.indrelid = c.oid and i.indisprimary), 'row_to_json(t)'),
              n.nspname, c.relname)
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
 where n.nspname = $1::text and c.relname = $2::text and c.relkind in ('r', 'p')
