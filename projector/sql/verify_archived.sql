-- The minute of the newest moment before which tasks may have been archived, counted from 1970; -1: none.
-- Locks nothing.
select coalesce(floor(date_part('epoch', taskledger_internal.archived_before()) / 60)::bigint, -1)
