-- Whether the database crashed since its incarnation was $1. Locks nothing.
select taskledger_internal.incarnation() is distinct from $1::text
