-- The name of a login.
-- $1 its id. Returns one row, or none. Locks nothing. Index: primary key.
select l.name
  from taskledger.logins l
 where l.id = $1::integer
