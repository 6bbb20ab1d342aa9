-- Removes a lease that has ended or belongs to a worker of the session's login.
-- $1 name. Locks the row. Index: primary key.
select taskledger_internal.remove_lease($1::text)
