-- Moves the cursor of a reader, without waiting for the disk: after a crash the reader reads some events again.
-- $1 reader, $2 snapshot (text). Locks its row.
update floor.cursor set seen = $2::text::pg_snapshot
  from (select set_config('synchronous_commit', 'off', true)) s
 where reader = $1::text
