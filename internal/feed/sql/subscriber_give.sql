-- Gives a subscriber to another login, and returns whether the subscriber exists.
-- $1 name, $2 login. Locks as taskledger_internal.append_cursor. Index: primary key, backwards.
select taskledger.give_subscriber($1::text, $2::text)
