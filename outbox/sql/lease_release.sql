-- Gives the lease of the relay back.
-- $1 holder. Locks the row.
delete from taskledger.lease where name = 'relay' and holder = $1::text
