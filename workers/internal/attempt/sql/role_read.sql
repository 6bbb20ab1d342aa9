-- Reads the role that the transaction has set, or none. Returns one row. Locks nothing. Reads no table.
select current_setting('role')
