-- Sets how long statements of this transaction wait for locks, that names are found with their schema only, and that
-- the commit waits for the disk.
-- $1 milliseconds. Locks nothing.
select set_config('lock_timeout', $1::text, true), set_config('search_path', '', true),
       set_config('synchronous_commit', 'on', true)
