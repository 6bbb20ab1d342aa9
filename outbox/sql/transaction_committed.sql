-- Reports whether a transaction has committed.
-- $1 its id. Locks nothing.
select coalesce(pg_xact_status($1::text::xid8) = 'committed', true)
