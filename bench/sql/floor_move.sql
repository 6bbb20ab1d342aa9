-- Moves the cursor of a reader. $1 reader, $2 snapshot (text). Locks its row.
update floor.cursor set seen = $2::text::pg_snapshot where reader = $1::text
