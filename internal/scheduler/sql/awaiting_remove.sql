-- Removes the timers of tasks that no longer wait for their predecessors.
-- $1 kinds, $2 biz_ids: text array literals of one length. Locks the timers. Index: primary keys.
select taskledger_internal.remove_awaiting($1::text::text[], $2::text::text[])
