-- Removes a subscriber, and returns whether there was one.
-- $1 name. Locks its rows. Index: primary key.
select taskledger.remove_subscriber($1::text)
