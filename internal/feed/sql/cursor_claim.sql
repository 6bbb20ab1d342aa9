-- Locks the oldest cursor row of a reader until the end of the transaction, unless another transaction has done so.
-- $1 reader. Returns n of the row; no row if another transaction has locked it.
-- Locks that row against others of this statement; rows may be appended. Index: primary key.
select c.n
  from taskledger.cursor c
 where c.reader = $1::text
 order by c.n
 limit 1
   for no key update skip locked
