-- The place of a reader that may have read any of the events committed until the event at a position, and has read
-- that event: no event that was committed later is before the place.
-- $1 position. Returns no row without such an event.
-- Locks nothing. Indexes: primary key of moment, (position).
select p.seen::text, least(p.seen_top, $1::bigint), p.seen_bound::text
  from taskledger_internal.place(null, $1::bigint) p
