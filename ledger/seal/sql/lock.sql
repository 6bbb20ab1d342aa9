-- Locks the seal until the transaction ends, and has the commit wait for the disk: no checkpoint may be printed of a
-- batch that a crash can undo.
select taskledger.lock_seal(),
       case when current_setting('synchronous_commit') = 'off' then set_config('synchronous_commit', 'on', true) end
