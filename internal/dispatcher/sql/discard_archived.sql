-- Discards the tasks whose keys were archived before they were enqueued again.
-- $1 kinds, $2 biz_ids: text array literals of one length. Returns the numbers of these tasks, from 1.
-- Waits for concurrent appends to them. Indexes: primary keys.
select d.n from taskledger_internal.discard_archived($1::text::text[], $2::text::text[], 'dispatcher') d
