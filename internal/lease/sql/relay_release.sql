-- Deletes the lease of the relay.
-- $1 holder. Locks the row. Index: primary key.
delete from taskledger.lease where name = 'relay' and holder = $1::text
