-- Selects which events were delivered at a place, as followed.sql defines it by $2, $3 and $4.
-- $1 positions (array literal). Locks nothing. Index: (position).
select e.position
  from unnest($1::text::bigint[]) p(position)
  join taskledger.event e on e.position = p.position
 where taskledger.feed_passed(e.xid, e.position, (select taskledger.feed_floor()), $2::text::pg_snapshot,
                              nullif($3::text, '')::pg_snapshot, $4::bigint)
