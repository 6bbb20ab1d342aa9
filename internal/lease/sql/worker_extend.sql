-- Extends leases of workers of this login that would end within two thirds of their term.
-- $1 names of the leases, a text array literal.
-- Locks the rows. Index: primary key.
update taskledger.lease l
   set alive_until = clock_timestamp() + l.term
 where l.name = any ($1::text::text[]) and l.login = session_user
   and l.alive_until < clock_timestamp() + l.term * 2 / 3
