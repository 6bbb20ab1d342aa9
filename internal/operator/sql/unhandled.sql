-- Selects the kinds with tasks in the projection that are available or running, and no live worker; by name.
-- $1 maximum number of tasks, in any state, of a kind whose oldest task is read.
-- Returns kind, number of these tasks, and how many milliseconds the oldest has been so; -1: not read.
-- Locks nothing. Indexes: see the function.
select u.kind, u.waiting, u.oldest_ms from taskledger_internal.unhandled_kinds($1::bigint) u order by u.kind
