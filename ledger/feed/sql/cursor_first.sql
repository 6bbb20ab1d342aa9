-- The first cursor row of a reader, at the edge before the first event.
-- $1 reader; the edge: $2 seen, $3 seen_top, $4 seen_bound. Inserts nothing if the reader has a cursor.
-- Locks its row. Index: primary key.
insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin)
select $1::text, 1, $2::text::pg_snapshot, $3::bigint, $4::text::xid8, taskledger.origin()
 where not exists (select from taskledger.cursor c where c.reader = $1::text)
    on conflict do nothing
