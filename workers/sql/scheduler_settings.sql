-- Settings for the rest of the transaction: the scheduler's statements go by index, and do not
-- wait long for somebody's open transaction that holds one of the tasks. A plan that seems dear by
-- that is not to be compiled. $1 how long they wait; $2 on or off: joins may be nested loops. (A batch that
-- the generic plan takes for a few rows was joined with itself row by row.) Locks nothing.
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true),
       set_config('lock_timeout', $1::text, true), set_config('enable_nestloop', $2::text, true)
