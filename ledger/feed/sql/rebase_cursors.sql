-- Puts the cursors of all readers before the first event. Older rows go, so that no reader returns to them. A
-- reader that works with an older row is superseded.
-- $1 seen, $2 seen_top, $3 seen_bound. Locks all rows.
with newest as (
  select c.reader, max(c.n) as n from taskledger.cursor c group by c.reader
), gone as (
  delete from taskledger.cursor
)
insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin)
select n.reader, n.n + 1, $1::text::pg_snapshot, $2::bigint, $3::text::xid8, taskledger.origin()
  from newest n
