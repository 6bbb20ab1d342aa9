-- Locks the seal until the transaction ends, and makes the commit wait for the disk: a checkpoint must not be printed
-- for a batch that a crash can undo.
select taskledger_internal.lock_seal(), taskledger_internal.commit_durably()
