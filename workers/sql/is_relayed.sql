-- Selects whether workers may receive: the database is not a copy of one whose relay works.
-- Locks nothing. Index: primary key of cursor, backwards.
select taskledger.is_relayed_here()
