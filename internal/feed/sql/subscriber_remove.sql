-- Removes a subscriber, and returns whether it existed.
-- $1 name. Locks its rows. Index: primary key.
select taskledger.remove_subscriber($1::text)
