-- Has the commit of the transaction wait for the disk if synchronous_commit is off. No parameters. Locks nothing.
select taskledger_internal.commit_durably()
