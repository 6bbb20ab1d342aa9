-- The first cursor row of a reader: it has seen nothing. ('3:3:' is a snapshot in which no
-- transaction is visible; 3 is the first there is.)
-- $1 reader. Inserts nothing if the reader has a cursor.
insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin)
select $1::text, 1, '3:3:', 0, '3', taskledger.origin()
 where not exists (select from taskledger.cursor c where c.reader = $1::text)
    on conflict do nothing
