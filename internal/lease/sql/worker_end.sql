-- Removes a lease.
-- $1 name. Locks the row. Index: primary key.
delete from taskledger.lease l where l.name = $1::text
