-- Raises insufficient_privilege if row $2 is the newest of a subscriber of another login: cursor_append.sql did not
-- find it, because it cannot lock a row of another login.
-- $1 reader, $2 n. Locks nothing. Index: primary key, backwards.
select taskledger_internal.check_owner(substr(c.reader, 12), c.login)::text
  from (
   select m.reader, m.n, m.login from taskledger.cursor m
    where m.reader = $1::text
    order by m.n desc
    limit 1) c
 where c.n = $2::bigint
