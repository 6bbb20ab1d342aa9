-- The position at which a scan of list_tagged.sql ends; no row if it reaches the first task of the tag.
-- $1 tag, $2 position before which it begins, $3 number of tasks.
-- Locks nothing. Index: primary key.
select g.position from taskledger.task_tag g
 where g.tag = $1::text and g.position < $2::bigint
 order by g.position desc
offset $3::integer - 1
 limit 1
