-- Returns the id of the transaction, '' if it has none. Locks nothing.
select coalesce(pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text, '')
