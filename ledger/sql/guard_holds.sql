-- Reads whether the guard is set in the open transaction. A guard is local to the transaction that set it.
-- $1 guard. Returns one row. Locks nothing. Reads no table.
select current_setting('taskledger.attempt', true) = $1::text
