-- Asks the program that works as a subscriber for a rebuild, which the transaction has recorded, or a verification.
-- $1 subscriber, $2 rebuild or verify. Returns the version of the tables; no row if it is not registered.
-- Locks the row. Index: primary key.
select r.version from taskledger_internal.ask_subscriber($1::text, $2::text) r(version)
