-- Selects places before the enqueueing of tasks that the projector lists as lingering: of those of each of some kinds,
-- and of all of them for the kind ''. No row without such tasks.
-- $1 kinds (text array literal). Returns the kind, and the columns seen, seen_top and seen_bound of a cursor.
-- The clock may have been stepped, so each is the place of a minute before. The reconciler releases what it lacks.
-- Locks nothing. Indexes: task_lingering, read once to its end, and as taskledger.place_at.
with first as materialized (
  (select '' as kind, l.enqueued_at
     from taskledger.lingering_tasks l
    order by l.enqueued_at, l.kind, l.biz_id
    limit 1)
  union all
  select l.kind, min(l.enqueued_at)
    from taskledger.lingering_tasks l
   where l.kind = any ($1::text::text[])
   group by l.kind)
select f.kind, p.seen::text, p.seen_top, p.seen_bound::text
  from first f
 cross join lateral taskledger.place_at(f.enqueued_at - interval '1 minute') p
