-- Asks the program that runs a projection for a rebuild, which the transaction has recorded, or a verification.
-- $1 projection, $2 rebuild or verify. Returns the version of the tables; no row if it is not registered.
-- Locks the row. Index: primary key.
select r.version from taskledger_internal.ask_projection($1::text, $2::text) r(version)
