-- Selects the next unfinished tasks of kinds and priorities that the projector lists as lingering, in the order in
-- which they begin.
-- $1 kinds, $2 priorities, $3 positions to continue after, $4 how many tasks of each kind and priority: array literals
-- of one length.
-- Returns the place of the list (JSON, '' without a list), and in each row the number of the kind and priority in the
-- arrays, from 1, and biz_id and position of a task, ordered by number and position. Without tasks, one row with 0.
-- Locks nothing. Index: task_next; the lateral limit keeps the planner on it.
select coalesce((select p.place::text from taskledger.lingering_place p), ''), coalesce(l.n, 0),
       coalesce(l.biz_id, ''), coalesce(l.position, 0)
  from (select) always
  left join (
    select k.n, t.biz_id, t.position
      from unnest($1::text::text[], $2::text::smallint[], $3::text::bigint[], $4::text::bigint[])
           with ordinality as k(kind, priority, after, most, n)
     cross join lateral (
       select i.biz_id, i.position
         from taskledger.lingering_tasks i
        where i.kind = k.kind and i.priority = k.priority and i.position > k.after
        order by i.position
        limit k.most) t) l on true
 order by 2, 4
