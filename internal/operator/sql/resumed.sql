-- Selects the newest records of resumed kinds, by time: biz_id.
-- $1 biz_id after which to begin; $2 end of their biz_ids; $3 most records.
-- Locks nothing. Index: primary key of task.
select t.biz_id
  from taskledger.tasks t
 where t.kind = 'taskledger.operation' and t.biz_id > $1::text and t.biz_id < $2::text
 order by t.biz_id desc
 limit $3::bigint
