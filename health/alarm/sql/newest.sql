-- Selects the biz_id of the newest alarm of a receiver. ('0' is the character after '/'.)
-- A number has 19 digits, as many as the largest bigint, so that the order of the texts is that of the numbers. A key
-- of another form is no alarm.
-- $1 kind of alarms, $2 receiver. Locks nothing. Index: primary key, backwards.
select e.biz_id
  from taskledger.event e
 where e.kind = $1::text and e.biz_id > $2::text || '/' and e.biz_id < $2::text || '0'
   and e.biz_id ~ '/[0-9]{19}$'
 order by e.biz_id desc
 limit 1
