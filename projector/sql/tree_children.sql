-- The projected tasks that each of some tasks has caused.
-- $1 causes, as kind/biz_id: a text array literal; $2 maximum number for each cause, $3 maximum number in
-- all.
-- Returns the index of the cause in $1, from 0, and the task.
-- Locks nothing. Index: task_cause; it reads only the rows that it returns.
select (k.i - 1)::integer, c.kind, c.biz_id, c.state::text, c.attempt,
       (extract(epoch from c.enqueued_at) * 1e6)::bigint, (extract(epoch from c.updated_at) * 1e6)::bigint
  from unnest($1::text::text[]) with ordinality as k(cause, i)
 cross join lateral (
   select t.kind, t.biz_id, t.state, t.attempt, t.enqueued_at, t.updated_at
     from taskledger.task t
    where t.cause = k.cause
    order by t.kind, t.biz_id
    limit $2::integer) c
 order by k.i, c.kind, c.biz_id
 limit $3::integer
