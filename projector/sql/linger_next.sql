-- Selects the tasks that one of the next $7 events of a window made available, that are not finished, and that are not
-- listed as lingering by that event yet. The window has been applied.
-- $1 seen, $2 seen_top, $3 seen_bound, $4 until, $5 top of the window; $6 position to continue after; $7 maximum number
-- of events.
-- Returns in each row the number of events and the position of the last one; then a task, and the position of the last
-- event that made it available, or nulls. In key order.
-- Locks nothing. Indexes: as feed_page, then the primary key; the lateral limit keeps the planner on it.
with page as materialized (
  select e.position, e.kind, e.biz_id, e.type
    from taskledger_internal.feed_page($1::text::pg_snapshot, $2::bigint, $3::text::xid8, $4::text::pg_snapshot,
                                       $5::bigint, $6::bigint, $7::integer) e
), reached as (
  select count(*) as events, coalesce(max(p.position), 0) as position from page p
), made as (
  select p.kind, p.biz_id, max(p.position) as position
    from page p
   where p.type in ('enqueued', 'released', 'interrupted')
   group by p.kind, p.biz_id
)
select reached.events, reached.position, k.kind, k.biz_id, k.position
  from reached
  left join (
    select m.kind, m.biz_id, m.position
      from made m
     cross join lateral (
       select c.state, c.lingering from taskledger.task c where c.kind = m.kind and c.biz_id = m.biz_id limit 1) t
     where t.state in ('available', 'running') and t.lingering is distinct from m.position) k on true
 order by k.kind, k.biz_id
