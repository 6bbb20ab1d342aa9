-- Marks up to $1 pending tasks as running. Locks them, and skips tasks with a lock. Needs task_pending.
update task
   set status = 'running', started_at = now(), attempts = attempts + 1
 where id = any (array(select id
                         from task
                        where status = 'pending'
                        order by id
                        limit $1::integer
                          for update skip locked))
returning id, biz_id, args::text
