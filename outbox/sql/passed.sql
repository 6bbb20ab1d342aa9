-- Selects which events a relay does not publish any more: it has passed them, or they do not exist.
-- $1 positions, $2 for each of them the number of a place, from 1 (array literals). $3, $4, $5 are these places (text
-- array literals): events count as delivered if they are visible in the snapshot of $3, or in that of $4 with a
-- position up to that of $5 ('' for no snapshot).
-- Returns their positions. Locks nothing. Index: (position).
select p.position
  from unnest($1::text::bigint[], $2::text::integer[]) p(position, place)
  join unnest($3::text::text[], $4::text::text[], $5::text::bigint[]) with ordinality at(seen, until, after, n)
    on at.n = p.place
  left join taskledger.event e on e.position = p.position
 where e.position is null
    or taskledger.feed_passed(e.xid, e.position, (select taskledger.feed_floor()), at.seen::pg_snapshot,
                              nullif(at.until, '')::pg_snapshot, at.after)
