-- Makes a schema the only one in which names without a schema are found, until the end of the transaction. Returns the
-- id of the transaction too, '' if it has none.
-- $1 schema. Locks nothing.
select set_config('search_path', quote_ident($1::text), true), coalesce(pg_current_xact_id_if_assigned()::text, '')
