-- Keeps all others from delivering to a receiver until this transaction ends. While it waits for
-- the receiver it is idle, as nothing but a minute's hang of this process may make it for long.
-- $1 receiver. Answers whether it is ours; waits for nobody.
select set_config('idle_in_transaction_session_timeout', '60000', true),
       pg_try_advisory_xact_lock(hashtextextended('taskledger.alarm/' || $1::text, 0))
