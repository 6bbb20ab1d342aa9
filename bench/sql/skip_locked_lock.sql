-- Returns the first pending task without a lock and locks it. No parameters. Needs task_pending.
select id, biz_id, args::text
  from task
 where status = 'pending'
 order by id
 limit 1
   for update skip locked
