-- Returns the microseconds since a reader has advanced its cursor, by the clock of the database.
-- $1 reader. Locks nothing. Index: primary key of the cursor, backwards.
select (extract(epoch from clock_timestamp() - c.recorded_at) * 1e6)::bigint
  from taskledger.cursors c
 where c.reader = $1::text
 order by c.n desc
 limit 1
