-- The archived events that a snapshot may not see: whether they are in files, their number, the first and the last
-- position.
-- $1 pg_snapshot, $2 kinds (array literal), null for all. Locks nothing. Index: see
-- taskledger_internal.archived_beyond.
select b.file is not null, sum(b.events)::bigint, min(b.first_position), max(b.last_position)
  from taskledger_internal.archived_beyond($1::text::pg_snapshot, $2::text::text[]) b
 group by 1
