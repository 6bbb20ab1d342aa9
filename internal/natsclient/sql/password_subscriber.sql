-- Selects the password of a user for subscribers, '' before the first start of a server.
-- $1 name of the user. Locks nothing. Index: primary key.
select coalesce(taskledger_internal.broker_subscriber($1::text), '')
