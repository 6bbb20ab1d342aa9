-- Locks the seal until the transaction ends, and has the commit wait for the disk: no checkpoint may be printed of a
-- batch that a crash can undo.
select taskledger.lock_seal(), taskledger.commit_durably()
