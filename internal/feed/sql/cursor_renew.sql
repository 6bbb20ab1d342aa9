-- Appends cursor row $2 of a subscriber again, as row $2 + 1, if it is the newest: other processes that compare the
-- cursor find that one works. The commit does not wait for the disk.
-- $1 reader, $2 n, $3 the incarnation in which the page was read, $4 origin and $5 timeline of the database in that
-- incarnation.
-- Locks row $2 against deletion; waits for a concurrent insert of the same n.
insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, until, top, bound, after_position, origin, mark,
                               audited, unaudited, unaudited_xor, timeline, login)
select newest.reader, newest.n + 1, newest.seen, newest.seen_top, newest.seen_bound, newest.until, newest.top,
       newest.bound, newest.after_position, $4::text, newest.mark, newest.audited, newest.unaudited,
       newest.unaudited_xor, $5::bigint, coalesce(newest.login, session_user)
  from (
   select c.reader, c.n, c.seen, c.seen_top, c.seen_bound, c.until, c.top, c.bound, c.after_position, c.mark,
          c.audited, c.unaudited, c.unaudited_xor, c.login
     from taskledger.cursor c
    where c.reader = $1::text
    order by c.n desc
    limit 1
      for key share) newest
 where newest.n = $2::bigint and taskledger_internal.incarnation() = $3::text
   and set_config('synchronous_commit', 'off', true) is not null
    on conflict do nothing
returning n
