-- Removes events from the list of those that cannot be published.
-- $1 positions (array literal). Returns the positions that were in the list. Locks the rows. Index: primary key.
delete from taskledger.parked p
 where p.position = any ($1::text::bigint[]) and not p.discarded
returning p.position
