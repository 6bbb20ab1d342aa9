-- Locks the row of a reader in the registry until the end of the transaction: no other tables of it come into use.
-- $1 reader. Locks the row. Index: primary key.
select p.version from taskledger.subscriber_state p where p.reader = $1::text for no key update
