-- Reads the role that a transaction has set, or none. Returns one row. Locks nothing. Reads no table.
select current_setting('role')
