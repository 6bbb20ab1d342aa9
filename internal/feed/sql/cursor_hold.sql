-- Locks the cursor of a reader until the end of the transaction: the reader waits before its next page.
-- $1 reader. Returns n of the newest row; no row without a cursor.
-- Locks that row. Index: primary key, backwards.
select c.n
  from taskledger.cursor c
 where c.reader = $1::text
 order by c.n desc
 limit 1
   for update
