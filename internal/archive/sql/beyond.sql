-- The files of the archived events that a snapshot may not see, '' for none: their number, the first and the last
-- position.
-- $1 pg_snapshot. Locks nothing. Index: see taskledger_internal.archived_beyond.
select coalesce(b.file, ''), b.events, b.first_position, b.last_position
  from taskledger_internal.archived_beyond($1::text::pg_snapshot, null) b
 order by b.first_position
