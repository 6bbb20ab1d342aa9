-- Serializes workers of a kind that take their first lease: of two workers that exclude each other, the later worker
-- sees the other's lease. $1 kinds: array literal. Locks a row for each kind until the end of the transaction. Index:
-- primary key.
select taskledger_internal.lock_workers($1::text::text[])
