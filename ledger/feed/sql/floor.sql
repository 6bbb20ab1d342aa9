-- Selects the floor: up to this position events are of another database. Beside it the position of an event of another
-- database above it (see taskledger.foreign_position), null for none, and the origin of this database.
-- Locks nothing. Indexes: (xid, position) and (position), one row each.
select coalesce(taskledger.feed_floor(), 0), taskledger.foreign_position(), taskledger.origin()
