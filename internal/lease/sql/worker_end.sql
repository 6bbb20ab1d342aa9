-- Removes a lease of a worker of the session's login, or one that has ended.
-- $1 name. Locks the row. Index: primary key.
select taskledger.remove_lease($1::text)
