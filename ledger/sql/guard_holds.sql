-- Whether the open transaction is the one in which a guard was set. $1 guard. Locks nothing; reads no table.
select current_setting('taskledger.attempt', true) = $1::text
