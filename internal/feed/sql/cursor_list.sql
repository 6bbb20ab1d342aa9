-- The kept cursor rows of a reader, newest first, from n < $2 on.
-- $1 reader, $2 n, $3 maximum number of rows. Locks nothing. Index: primary key, backwards.
select c.n, c.seen::text, c.seen_top, c.seen_bound::text, coalesce(c.until::text, ''), coalesce(c.top, 0),
       coalesce(c.bound::text, ''), c.after_position,
       coalesce(c.audited::text, ''), c.unaudited, c.unaudited_xor, c.mark::text,
       (extract(epoch from c.recorded_at) * 1e6)::bigint
  from taskledger.cursor c
 where c.reader = $1::text and c.n < $2::bigint
 order by c.n desc
 limit $3::integer
