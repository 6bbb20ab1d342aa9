-- The sealer's place: whether it is of this database, and the highest position that the sealer may have passed.
-- Locks nothing. Index: primary key of cursor, backwards.
select c.is_local, greatest(c.seen_top, c.after_position)
  from taskledger.cursors c
 where c.reader = 'seal'
 order by c.n desc
 limit 1
