-- Makes the commit of the transaction wait for the disk if synchronous_commit is off.
-- Returns one row. Locks nothing. Reads no table.
select taskledger_internal.commit_durably()
