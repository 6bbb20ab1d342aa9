-- Is this still the transaction that the guard was set in? $1 the guard.
select current_setting('taskledger.attempt', true) = $1::text
