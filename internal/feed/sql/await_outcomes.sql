-- Makes appends of events wake a sleeping feed.
-- $1 for how many microseconds from now on.
-- Returns one row. Locks nothing.
select taskledger_internal.await_outcomes($1::bigint)
