-- Reads whether the guard is set in the open transaction. A guard is local to the transaction that set it.
-- $1 guard. Returns one row. Locks nothing. Reads no table.
select pg_catalog.current_setting('taskledger.attempt', true) operator(pg_catalog.=) $1::pg_catalog.text
