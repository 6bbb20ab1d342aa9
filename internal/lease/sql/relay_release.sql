-- Deletes the lease of the relay.
-- $1 holder. Locks the row. Index: primary key.
select taskledger_internal.release_relay($1::text)
