-- The newest alarm of a receiver: its biz_id. ('0' comes right after '/'.)
-- $1 kind of alarms, $2 receiver. Locks nothing. Index: primary key, backwards.
select e.biz_id
  from taskledger.event e
 where e.kind = $1::text and e.biz_id > $2::text || '/' and e.biz_id < $2::text || '0'
 order by e.biz_id desc
 limit 1
