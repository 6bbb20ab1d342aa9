-- Settings for the rest of the transaction: the scheduler's statements use indexes, and do not wait long for an
-- open transaction that has locked a task. Their plans seem expensive by that, and must not be compiled (jit).
-- $1 lock_timeout; $2 on or off: joins may be nested loops. (With on, a batch that the generic plan estimates at
-- a few rows was joined with itself row by row.)
-- Locks nothing.
select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true),
       set_config('lock_timeout', $1::text, true), set_config('enable_nestloop', $2::text, true)
