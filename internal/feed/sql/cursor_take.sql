-- Moves the cursor of a reader to the place of another reader, by a row after its newest.
-- $1 reader, $2 the other reader, $3 mark (JSON text or null).
-- Returns n of the new row; no row if the other reader has no cursor.
-- Waits for a concurrent insert of the same n. Index: primary key, backwards.
insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, until, top, bound, after_position, origin,
                               audited, unaudited, unaudited_xor, mark)
select $1::text, coalesce((select max(own.n) from taskledger.cursor own where own.reader = $1::text), 0) + 1,
       c.seen, c.seen_top, c.seen_bound, c.until, c.top, c.bound, c.after_position, taskledger_internal.origin(),
       c.audited, c.unaudited, c.unaudited_xor, $3::text::json
  from taskledger.cursor c
 where c.reader = $2::text
 order by c.n desc
 limit 1
returning n
