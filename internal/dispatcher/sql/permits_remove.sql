-- Removes old permits, and returns their number.
-- $1 how many at most. Locks the removed rows, and passes over locked ones. Reads the whole small table.
select taskledger_internal.remove_permits($1::integer)
