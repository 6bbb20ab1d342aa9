-- The tasks of a kind that waited when the projector had counted, among the next $8 events of a window: tasks whose
-- last event up to there made them available.
-- $1 kind; the window: $2 seen, $3 seen_top, $4 seen_bound, $5 until, $6 top; $7 position after which to start,
-- $8 maximum number of events, $9 maximum number of tasks; the projector's place: everything visible in $10 was
-- counted, and up to position $12 everything visible in $11 ('' for none); $13 incarnation of the
-- database.
-- Returns whether the incarnation is unchanged, the number of events, the position of the last one, and in each row a
-- task (or nulls): position of the event, biz_id, version, and whether a later event exists. Ordered by position.
-- Locks nothing. Indexes: as feed_page, then the primary key for each event that made a task of the kind
-- available; the lateral limit keeps the planner on it.
with page as materialized (
  select e.position, e.kind, e.biz_id, e.version, e.type
    from taskledger_internal.feed_page($2::text::pg_snapshot, $3::bigint, $4::text::xid8, $5::text::pg_snapshot,
                                       $6::bigint, $7::bigint, $8::integer) e
), reached as (
  select taskledger_internal.incarnation() is not distinct from $13::text as same,
         count(*) as events, coalesce(max(p.position), 0) as position
    from page p
)
select reached.same, reached.events, reached.position,
       waiting.position, waiting.biz_id, waiting.version, waiting.moved
  from reached
  left join (
    select p.position, p.biz_id, p.version, next.xid is not null as moved
      from page p
      left join lateral (
        select n.xid, n.position
          from taskledger.event n
         where n.kind = p.kind and n.biz_id = p.biz_id and n.version > p.version
         order by n.version
         limit 1) next on true
     where p.kind = $1::text and p.type in ('enqueued', 'released', 'interrupted')
       and not taskledger_internal.feed_passed(next.xid, next.position, (select taskledger_internal.feed_floor()),
                                               $10::text::pg_snapshot, nullif($11::text, '')::pg_snapshot, $12::bigint)
     order by p.position
     limit $9::integer) waiting on true
 order by waiting.position
