-- Removes events from the list of events that cannot be published, and records that they must never be published.
-- $1 positions (array literal). Returns the positions that were in the list. Locks the rows. Index: primary key.
update taskledger.parked p
   set discarded = true
 where p.position = any ($1::text::bigint[]) and not p.discarded
returning p.position
