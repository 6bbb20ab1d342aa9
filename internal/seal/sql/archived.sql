-- The sealed events that the archive has removed: their number, the exclusive or of their positions, and a position
-- that none of them is above. Locks nothing.
select t.events, t.positions_xor, t.until from taskledger_internal.archive_tally() t
