-- Selects the password of the user operator, '' before the first start of a server.
-- Locks nothing. Index: primary key.
select coalesce(taskledger_internal.broker_operator(), '')
