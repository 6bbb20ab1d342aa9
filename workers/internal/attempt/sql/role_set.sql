-- Sets the role for the rest of the transaction.
-- $1 role or none. Returns one row. Locks nothing. Reads no table.
select set_config('role', $1::text, true)
