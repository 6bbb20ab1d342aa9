-- Selects the mark of the relay's newest cursor row. Locks nothing. Index: primary key, backwards.
select c.mark::text
  from taskledger.cursors c
 where c.reader = 'relay'
 order by c.n desc
 limit 1
