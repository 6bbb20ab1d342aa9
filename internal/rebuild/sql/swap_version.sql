-- Locks the row of a projection in the registry until the end of the transaction: no other tables of it come into use.
-- $1 projection. Locks the row. Index: primary key.
select p.version from taskledger.projection p where p.name = $1::text for no key update
