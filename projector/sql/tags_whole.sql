-- Whether taskledger.task_tag contains the tags of all projected tasks; no row if no event is projected.
-- $1 reader. Locks nothing. Index: primary key of cursor.
select coalesce((c.mark->>'tagged')::boolean, false)
  from taskledger.cursors c
 where c.reader = $1::text
 order by c.n desc
 limit 1
