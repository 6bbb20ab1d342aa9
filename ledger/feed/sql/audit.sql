-- Goes on counting the events between two snapshots, visible in $2 and not in $1, by that plain
-- definition: the belt to the braces of page.sql, which finds them by another way.
-- $1 since, $2 until, $3 xid and $4 position of the last entry looked at, $5 how many entries to
-- look at. Answers how many entries there were, how many of them are such events, the exclusive
-- or of their positions, and xid and position of the last entry.
-- Locks nothing. Index: (xid, position), read through without the rows where these are vacuumed.
select t.entries, t.events, t.positions, t.xid::text, t.position
  from taskledger.feed_tally($1::text::pg_snapshot, $2::text::pg_snapshot, $5::integer, $3::text::xid8, $4::bigint) t
