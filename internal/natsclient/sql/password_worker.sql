-- Selects the password of the user worker, '' before the first start of a server.
-- Locks nothing. Index: primary key.
select coalesce(taskledger_internal.broker_worker(), '')
