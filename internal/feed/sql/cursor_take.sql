-- Moves the cursor of a reader to the place of another reader, by a row after its newest. A subscriber keeps its mark
-- and its login.
-- $1 reader, $2 the other reader, $3 mark (JSON text or null).
-- Returns n of the new row; no row without a cursor of the other reader.
-- Waits for a concurrent insert of the same n. Index: primary key, backwards.
insert into taskledger.cursor (reader, n, seen, seen_top, seen_bound, until, top, bound, after_position, origin,
                               audited, unaudited, unaudited_xor, mark, login)
select $1::text, coalesce(own.n, 0) + 1,
       c.seen, c.seen_top, c.seen_bound, c.until, c.top, c.bound, c.after_position, taskledger_internal.origin(),
       c.audited, c.unaudited, c.unaudited_xor,
       case when starts_with($1::text, 'subscriber/') then own.mark else $3::text::json end, own.login
  from taskledger.cursor c
  left join lateral (
    select o.n, o.mark, o.login
      from taskledger.cursor o
     where o.reader = $1::text
     order by o.n desc
     limit 1) own on true
 where c.reader = $2::text
 order by c.n desc
 limit 1
returning n
