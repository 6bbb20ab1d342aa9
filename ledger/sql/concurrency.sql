-- Reads concurrency limits, with the number of permits in use and the projector's count of waiting tasks.
-- $1 the kind after which the list begins, '' for the first one; $2 most limits.
-- Locks nothing. Index: primary keys; reads the permits of each kind.
select c.kind, c.max_running, c.running,
       coalesce((select t.tasks from taskledger.task_totals t
                  where t.kind = c.kind and t.state = 'available' order by t.n desc limit 1), 0)
  from taskledger.concurrency c
 where c.kind > $1::text
 order by c.kind
 limit $2::bigint
