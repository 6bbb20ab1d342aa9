-- Returns whether the list of unfinished tasks is at or after a position. $1 position. Takes no locks.
select exists (select from taskledger_internal.lingering_place p where (p.place->'seen'->>'top')::bigint >= $1)
