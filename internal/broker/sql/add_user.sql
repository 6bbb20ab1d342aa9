-- Adds a user, unless it exists.
-- $1 name, $2 password. Locks the row. Index: primary key.
select taskledger_internal.add_broker_user($1::text, $2::text)
