-- The place of a time in the order of commits.
-- $1 time in microseconds since 1970. Returns one row: the place (see taskledger_internal.place), whether the time is
-- in the future, when the first event was recorded, null without events, and whether events may be archived.
-- Locks nothing. Indexes: primary key of moment, (position).
select p.seen::text, p.seen_top, p.seen_bound::text, p.until::text, p.top, p.after_position,
       timestamptz 'epoch' + $1::bigint * interval '1 microsecond' > clock_timestamp(),
       (select (extract(epoch from e.recorded_at) * 1e6)::bigint
          from taskledger.event e
         order by e.position
         limit 1), taskledger_internal.archived_until() > 0
  from taskledger_internal.place(timestamptz 'epoch' + $1::bigint * interval '1 microsecond', null) p
