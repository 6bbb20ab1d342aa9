-- Selects whether the projector's list of lingering tasks may be used, and whether there is a task to look at: one in
-- the list, or while that may not be used, one that is available or running.
-- Locks nothing. Indexes: primary keys of cursor, backwards, and of task_count; task_lingering, on which the order and
-- the limit keep the planner.
select c.is_current,
       case
         when c.is_current
         then exists (select from (
                select t.kind from taskledger.lingering_tasks t order by t.enqueued_at, t.kind, t.biz_id limit 1) l)
         else exists (select from taskledger.task_counts k where k.state in ('available', 'running') and k.tasks > 0)
       end
  from taskledger.lingering_is_current c
