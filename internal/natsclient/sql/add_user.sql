-- Adds a user, unless it exists. Returns no row if it exists.
-- $1 name, $2 password. Locks the row. Index: primary key.
insert into taskledger.broker_user (name, password)
values ($1::text, $2::text)
    on conflict (name) do nothing
returning true
