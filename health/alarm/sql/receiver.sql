-- Adds the row that a delivery to a receiver locks, unless it exists.
-- $1 receiver. Locks the row for the statement. Index: primary key.
select taskledger_internal.add_receiver($1::text)
