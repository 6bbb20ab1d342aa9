-- Asks the program that runs a projection for a rebuild or a verification.
-- $1 projection, $2 rebuild or verify. Returns the version of the tables; no row if it is not registered.
-- Locks the row. Index: primary key.
update taskledger.projection p
   set wanted = $2::text
 where p.name = $1::text
returning p.version
