-- The place of an event in the order of commits.
-- $1 position. Returns one row: the place, null without such an event, and the positions of the events before and after
-- it, 0 for none; then the position up to which events may be archived, and the present snapshot.
-- Locks nothing. Indexes: primary key of moment, (position).
select p.seen::text, p.seen_top, p.seen_bound::text, p.until::text, p.top, p.after_position,
       coalesce((select e.position from taskledger.event e
                  where e.position < $1::bigint order by e.position desc limit 1), 0),
       coalesce((select e.position from taskledger.event e
                  where e.position > $1::bigint order by e.position limit 1), 0),
       taskledger_internal.archived_until(), pg_current_snapshot()::text
  from (select) one
  left join taskledger_internal.place(null, $1::bigint) p on true
