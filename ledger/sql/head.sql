-- Reads the last event of a task.
-- $1 kind, $2 biz_id. Returns one row or none. Locks nothing. Index: primary key, backwards.
select e.version, e.type::text
  from taskledger.event e
 where e.kind = $1::text and e.biz_id = $2::text
 order by e.version desc
 limit 1
