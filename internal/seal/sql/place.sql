-- The sealer's place: whether it is of this database, whether its row was written in it, the highest position that the
-- sealer may have passed, and the origin of this database.
-- Locks nothing. Index: primary key of cursor, backwards.
select c.is_local, c.written_here, greatest(c.seen_top, c.after_position), taskledger_internal.origin()
  from taskledger.cursors c
 where c.reader = 'seal'
 order by c.n desc
 limit 1
