-- Selects all users with their passwords.
-- Locks nothing. Reads the whole small table.
select u.name, u.password from taskledger_internal.broker_users() u
