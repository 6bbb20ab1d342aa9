-- Makes a schema the only one in which names without a schema are found, until the end of the transaction. Returns the
-- id of the transaction too, '' if it has none.
-- Names have their schema: Apply may have set another search_path.
-- $1 schema. Locks nothing.
select pg_catalog.set_config('search_path', pg_catalog.quote_ident($1::pg_catalog.text), true),
       coalesce(pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text, '')
