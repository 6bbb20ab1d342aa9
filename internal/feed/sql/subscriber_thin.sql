-- Removes rows of the cursor of a subscriber that it needs no more; returns the n above which to begin the next time.
-- $1 reader, $2 n above which to begin.
-- Deletes rows that no other transaction locks; index: primary key, from $2 on.
select taskledger_internal.thin_cursor($1::text, $2::bigint)
