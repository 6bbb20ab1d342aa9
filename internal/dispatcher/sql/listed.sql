-- Selects the next unfinished tasks of kinds, priorities and partitions that the projector lists as lingering, in the
-- order in which they begin, and the next partitions of kinds and priorities.
-- $1 kinds, $2 priorities, $3 partitions, $4 positions to continue after, $5 how many tasks of each: array literals of
-- one length. $6 kinds, $7 priorities, $8 partitions to continue after, $9 how many partitions of each: array literals
-- of one length.
-- Returns the place of the list (JSON, '' without a list), and in each row a number in the first arrays, from 1, and
-- biz_id and position of a task, ordered by number and position; or a negative number in the second arrays, from -1,
-- and a partition, ordered by number and name. Without either, one row with 0.
-- Locks nothing. Index: task_next; the lateral limits keep the planner on it. The search steps from partition to
-- partition (a loose index scan), and reads one entry of each.
with recursive wanted as materialized (
  select -w.n as n, w.kind, w.priority, w.after, w.most
    from unnest($6::text::text[], $7::text::smallint[], $8::text::text[], $9::text::bigint[])
         with ordinality as w(kind, priority, after, most, n)
), found as (
  select w.n, w.kind, w.priority, w.most, f.partition
    from wanted w
   cross join lateral (
     select i.partition
       from taskledger_internal.lingering_tasks i
      where i.kind = w.kind and i.priority = w.priority and i.partition > w.after
      order by i.partition
      limit 1) f
  union all
  select b.n, b.kind, b.priority, b.most - 1, f.partition
    from found b
   cross join lateral (
     select i.partition
       from taskledger_internal.lingering_tasks i
      where i.kind = b.kind and i.priority = b.priority and i.partition > b.partition
      order by i.partition
      limit 1) f
   where b.most > 1
), answer as (
  select k.n, t.biz_id as text, t.position
    from unnest($1::text::text[], $2::text::smallint[], $3::text::text[], $4::text::bigint[], $5::text::bigint[])
         with ordinality as k(kind, priority, partition, after, most, n)
   cross join lateral (
     select i.biz_id, i.position
       from taskledger_internal.lingering_tasks i
      where i.kind = k.kind and i.priority = k.priority and i.partition = k.partition and i.position > k.after
      order by i.position
      limit k.most) t
  union all
  select f.n, f.partition, 0 from found f
)
select coalesce((select p.place::text from taskledger_internal.lingering_place p), ''), coalesce(r.n, 0),
       coalesce(r.text, ''), coalesce(r.position, 0)
  from (select) always
  left join answer r on true
 order by r.n, r.position, r.text collate "C"
