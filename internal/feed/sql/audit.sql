-- Continues to count the events visible in snapshot $2 and not in $1, by this plain definition. It checks page.sql,
-- which selects them by another algorithm.
-- $1 since, $2 until; $3 xid and $4 position of the last entry read; $5 maximum number of entries. Returns
-- the number of entries, the number of such events among them, the exclusive or of their positions, and xid
-- and position of the last entry.
-- Locks nothing. Index: (xid, position), an index-only scan where rows are vacuumed.
select t.entries, t.events, t.positions, t.xid::text, t.position
  from taskledger_internal.feed_tally($1::text::pg_snapshot, $2::text::pg_snapshot, $5::integer, $3::text::xid8,
                                      $4::bigint) t
