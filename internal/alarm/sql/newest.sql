-- Selects the biz_id of the newest alarm of a receiver. ('0' is the character after '/'.) Numbers have 19 digits, like
-- the largest bigint, so texts sort like numbers. A key in another form is not an alarm. $1 kind of alarms, $2
-- receiver. Locks nothing. Index: primary key, backwards.
select e.biz_id
  from taskledger.event e
 where e.kind = $1::text and e.biz_id > $2::text || '/' and e.biz_id < $2::text || '0'
   and e.biz_id ~ '/[0-9]{19}$'
 order by e.biz_id desc
 limit 1
