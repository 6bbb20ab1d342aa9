-- Appends cursor row $2 + 1 of a reader, if row $2 is the newest: compare-and-set. A reader with an older row
-- inserts nothing, even if the rows after it have been thinned.
-- $1 reader, $2 n, $3 seen, $4 seen_top, $5 seen_bound, $6 until or '', $7 top, $8 bound, $9 after_position,
-- $10 mark (JSON text or null), $11 the incarnation in which the page was read: after a crash, an earlier
-- page advances nothing. Nor does a page ahead of the sequence of positions: it was read before an older copy of the
-- data, with the same incarnation, was put back. $12 audited or '', $13 unaudited, $14 unaudited_xor; $15 origin
-- of the database in that incarnation. $16 is 1 if the commit does not wait for the disk, so that a crash may undo it,
-- else 0. $17 timeline of the database in that incarnation. A subscriber without a login gets the session's.
-- Locks row $2 against deletion; waits for a concurrent insert of the same n.
insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, until, top, bound, after_position, origin, mark,
                               audited, unaudited, unaudited_xor, timeline, login)
select newest.reader, newest.n + 1, $3::text::pg_snapshot, $4::bigint, $5::text::xid8,
       nullif($6::text, '')::pg_snapshot, case when $6::text <> '' then $7::bigint end,
       case when $6::text <> '' then $8::text::xid8 end, $9::bigint, $15::text, $10::text::json,
       nullif($12::text, '')::pg_snapshot, $13::bigint, $14::bigint, $17::bigint,
       case when starts_with(newest.reader, 'subscriber/') then coalesce(newest.login, session_user) end
  from (
   select c.reader, c.n, c.login from taskledger.cursor c
    where c.reader = $1::text
    order by c.n desc
    limit 1
      for key share) newest
 where newest.n = $2::bigint and taskledger_internal.incarnation() = $11::text
   and (greatest($4::bigint, $7::bigint)
        > pg_sequence_last_value('taskledger.event_position_seq'::regclass)) is not true
   and ($16::integer = 0 or set_config('synchronous_commit', 'off', true) is not null)
    on conflict do nothing
returning n
