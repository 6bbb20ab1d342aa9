-- Selects the next unfinished tasks of kinds that the projector lists as lingering, in the order in which they begin.
-- $1 kinds, $2 positions to continue after: array literals of one length; $3 how many tasks of each kind.
-- Returns the place of the list (JSON, '' without a list), and in each row kind, biz_id and position of a task,
-- ordered by kind and position. Without tasks, one row with '' as kind.
-- Locks nothing. Index: task_next; the lateral limit keeps the planner on it.
select coalesce((select p.place::text from taskledger.lingering_place p), ''), coalesce(l.kind, ''),
       coalesce(l.biz_id, ''), coalesce(l.position, 0)
  from (select) always
  left join (
    select t.kind, t.biz_id, t.position
      from unnest($1::text::text[], $2::text::bigint[]) as k(kind, after)
     cross join lateral (
       select i.kind, i.biz_id, i.position
         from taskledger.lingering_tasks i
        where i.kind = k.kind and i.position > k.after
        order by i.position
        limit $3::bigint) t) l on true
 order by 2, 4
