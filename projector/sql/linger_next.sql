-- Selects the tasks that one of the next $7 events of a window made available, that are not finished, and that are not
-- listed as lingering yet. The window has been applied.
-- $1 seen, $2 seen_top, $3 seen_bound, $4 until, $5 top of the window; $6 position to continue after; $7 maximum number
-- of events.
-- Returns the number of events and the position of the last one, beside null or a task; in key order.
-- Locks nothing. Indexes: as taskledger.feed_page, then the primary key; the lateral limit keeps the planner on it.
with page as materialized (
  select e.position, e.kind, e.biz_id, e.type
    from taskledger.feed_page($1::text::pg_snapshot, $2::bigint, $3::text::xid8, $4::text::pg_snapshot, $5::bigint,
                              $6::bigint, $7::integer) e
), reached as (
  select count(*) as events, coalesce(max(p.position), 0) as position from page p
)
select reached.events, reached.position, k.kind, k.biz_id
  from reached
  left join (
    select distinct p.kind, p.biz_id
      from page p
     cross join lateral (
       select c.state, c.lingering from taskledger.task c where c.kind = p.kind and c.biz_id = p.biz_id limit 1) t
     where p.type in ('enqueued', 'released', 'interrupted') and t.state in ('available', 'running')
       and not t.lingering) k on true
 order by k.kind, k.biz_id
