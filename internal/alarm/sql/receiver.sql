-- Adds the row that a delivery to a receiver locks, unless it exists.
-- $1 receiver. Locks the row for the statement. Index: primary key.
insert into taskledger.mutex (name) values ('alarm/' || $1::text)
    on conflict (name) do nothing
