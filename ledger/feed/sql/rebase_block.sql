-- Makes the cursors of readers invalid, so that they refuse to work: appends a row that is of no database.
-- $1 readers that need not have a cursor (array literal); $2 seen, $3 seen_top, $4 seen_bound of the row.
-- A concurrent row of the reader wins, and the statement is to be executed again. Returns a row for each reader that
-- still has a valid cursor when it begins. Locks new rows. Reads all cursor rows.
with newest as (
  select distinct on (c.reader) c.reader, c.n, c.is_local
    from taskledger.cursors c
   order by c.reader, c.n desc
), valid as materialized (
  select n.reader, n.n from newest n where n.is_local
   union all
  select r.reader, 0
    from unnest($1::text::text[]) r(reader)
   where not exists (select from newest n where n.reader = r.reader)
), blocked as (
  insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, origin, xid)
  select v.reader, v.n + 1, $2::text::pg_snapshot, $3::bigint, $4::text::xid8, 'rebase', '3'
    from valid v
      on conflict do nothing
)
select v.reader from valid v
