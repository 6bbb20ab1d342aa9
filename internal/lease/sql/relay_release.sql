-- Deletes the lease of the relay.
-- $1 holder. Locks the row. Index: primary key.
select taskledger.release_relay($1::text)
