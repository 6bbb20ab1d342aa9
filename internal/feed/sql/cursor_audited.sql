-- Appends cursor row $2 of a reader again, as row $2 + 1 without unaudited events, if it is the newest. It appends none
-- within a window, because a stretch of unaudited events does not begin there. The commit does not wait for the disk.
-- $1 reader, $2 n, $3 the incarnation in which the events were read, $4 origin and $5 timeline of the database in that
-- incarnation.
-- Locks row $2 against deletion; waits for a concurrent insert of the same n.
insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, mark, timeline, login)
select newest.reader, newest.n + 1, newest.seen, newest.seen_top, newest.seen_bound, $4::text, newest.mark, $5::bigint,
       newest.login
  from (
   select c.reader, c.n, c.seen, c.seen_top, c.seen_bound, c.until, c.mark, c.login
     from taskledger.cursor c
    where c.reader = $1::text
    order by c.n desc
    limit 1
      for key share) newest
 where newest.n = $2::bigint and newest.until is null and taskledger_internal.incarnation() = $3::text
   and set_config('synchronous_commit', 'off', true) is not null
    on conflict do nothing
returning n
