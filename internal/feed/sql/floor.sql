-- Selects the floor: up to this position events belong to another database. Also the position of an event of another
-- database above it (see foreign_position), null for none; the origin of this database; how many positions
-- a session draws at once, and the newest position if the sequence is behind it, else 0. The number of positions must
-- be 1: a position drawn in advance may be older than the transaction that uses it.
-- Locks nothing. Indexes: (xid, position) and (position), one row each.
select coalesce(taskledger_internal.feed_floor(), 0), taskledger_internal.foreign_position(),
       taskledger_internal.origin(),
       (select s.seqcache from pg_catalog.pg_sequence s where s.seqrelid = 'taskledger.event_position_seq'::regclass),
       taskledger_internal.position_behind()
