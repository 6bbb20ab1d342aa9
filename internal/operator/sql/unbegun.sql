-- Selects the kinds with live workers whose oldest tasks have been available for too long, by name.
-- $1 milliseconds for which a task may be available, $2 maximum number of tasks, in any state, of a kind whose oldest
-- task is read.
-- Returns kind, number of available tasks, how many of them are too old, and when the oldest became available or null.
-- Locks nothing. Indexes: see the function.
select u.kind, u.waiting, u.late, (extract(epoch from u.oldest_at) * 1e6)::bigint
  from taskledger_internal.unbegun_kinds($1::bigint * interval '1 millisecond', $2::bigint) u
 order by u.kind
