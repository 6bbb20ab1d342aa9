-- Selects the password of the user waiter, '' before the first start of a server.
-- Locks nothing. Index: primary key.
select coalesce(taskledger_internal.broker_waiter(), '')
