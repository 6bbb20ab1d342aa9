-- Returns the id of the transaction, '' if it has none. Locks nothing.
select coalesce(pg_current_xact_id_if_assigned()::text, '')
