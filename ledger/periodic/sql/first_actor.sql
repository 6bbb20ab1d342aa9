-- Reads the actor of the first event of a task: a later run's actor may differ.
-- $1 kind, $2 biz_id. Returns one row, or none if the task does not exist. Locks nothing. Index: primary key.
select coalesce(e.actor, '')
  from taskledger.event e
 where e.kind = $1::text and e.biz_id = $2::text and e.version = 1
