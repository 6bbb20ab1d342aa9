-- Returns the statements that make the indexes of the built-in projection on new tables.
-- $1 schema, $2 tables: a text array literal. Locks nothing. Indexes of the catalogue.
select case
         when k.oid is not null
         then format('alter table %I.%I add constraint %I %s', $1::text, c.relname, k.conname,
                     pg_get_constraintdef(k.oid))
         else replace(pg_get_indexdef(i.indexrelid), format(' ON taskledger.%I ', c.relname),
                      format(' ON %I.%I ', $1::text, c.relname))
       end
  from unnest($2::text::text[]) t(name)
  join pg_catalog.pg_class c on c.oid = to_regclass(format('taskledger.%I', t.name))
  join pg_catalog.pg_index i on i.indrelid = c.oid
  left join pg_catalog.pg_constraint k on k.conindid = i.indexrelid and k.conrelid = c.oid
