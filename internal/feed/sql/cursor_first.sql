-- The first cursor row of a reader, at the edge before the first event.
-- $1 reader; the edge: $2 seen, $3 seen_top, $4 seen_bound. Inserts nothing if the cursor exists. A subscriber
-- gets the login of the session.
-- Locks its row. Index: primary key.
insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, login)
select $1::text, 1, $2::text::pg_snapshot, $3::bigint, $4::text::xid8, taskledger_internal.origin(),
       case when starts_with($1::text, 'subscriber/') then session_user end
 where not exists (select from taskledger.cursor c where c.reader = $1::text)
    on conflict do nothing
