-- Sets how long the statements of this transaction wait for a lock: producers wait behind them.
-- $1 milliseconds. Locks nothing.
select set_config('lock_timeout', $1::text, true)
