-- Counts the events in the table itself, whatever its indexes contain, see count_rows.
-- $1 snapshot. Locks nothing. No index.
select c.seen, c.unplaced, c.future from taskledger_internal.count_rows($1::text) c
