-- Removes events from the list of events that cannot be published.
-- $1 positions (array literal). Returns the positions that were in the list. Locks the rows. Index: primary key.
select r.position from taskledger_internal.remove_parked($1::text::bigint[]) r(position)
