-- The tasks that wait for a task: among a number of waiting tasks, those with this task among their predecessors. $1
-- kind and $2 biz_id of the task; $3 number of waiting tasks to search; $4 maximum number to return. Returns how many
-- waiting tasks there are, at most $3, and kind and biz_id of a task that waits for this task, which are null if no
-- task waits for it.
-- Locks nothing. Index: primary key of timer, at its high end; primary key of event, twice for each waiting task.
with waiting as (
  select t.kind, t.biz_id
    from taskledger.timers t
   where (t.due_at, t.kind, t.biz_id) > (taskledger_internal.end_of_time(), '', '') and t.reason = 'after'
   order by t.due_at, t.kind, t.biz_id
   limit $3::integer
), successor as (
  select w.kind, w.biz_id
    from waiting w
   cross join lateral (
     select e.meta from taskledger.event e
      where e.kind = w.kind and e.biz_id = w.biz_id and e.version = 1
      limit 1) f
   where (f.meta -> 'after' -> 'keys')::jsonb -- not all of meta: jsonb refuses large numbers
           @> jsonb_build_array(jsonb_build_object('kind', $1::text, 'biz_id', $2::text))
     and not exists (select from taskledger.event e
                      where e.kind = w.kind and e.biz_id = w.biz_id and e.version = 2)
   order by w.kind, w.biz_id
   limit $4::integer
)
select n.searched, s.kind, s.biz_id
  from (select count(*)::integer as searched from waiting) n
  left join successor s on true
 order by s.kind, s.biz_id
