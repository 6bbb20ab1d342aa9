-- The newest cursor row of a reader, and whether it was written in this very database. A physical copy of the
-- row (pg_upgrade, a promoted standby) keeps its xmin; a row restored from a dump does not. Returns the
-- incarnation of the database too, '' if it has none yet, its timeline, 0 on a standby, and whether the row is ahead of
-- the sequence of positions.
-- $1 reader. Locks nothing. Index: primary key, backwards.
select c.n, c.seen::text, c.seen_top, c.seen_bound::text, coalesce(c.until::text, ''), coalesce(c.top, 0),
       coalesce(c.bound::text, ''), c.after_position,
       coalesce(c.audited::text, ''), c.unaudited, c.unaudited_xor, c.mark::text,
       (extract(epoch from c.recorded_at) * 1e6)::bigint,
       c.origin, taskledger_internal.origin(), c.xmin::text::bigint = (c.xid::text::numeric % 4294967296)::bigint,
       coalesce(taskledger_internal.incarnation(), ''), coalesce(taskledger_internal.timeline(), 0),
       case when greatest(c.seen_top, c.top) > pg_sequence_last_value('taskledger.event_position_seq'::regclass)
         then taskledger_internal.position_behind() = 0 else false end
  from taskledger.cursor c
 where c.reader = $1::text
 order by c.n desc
 limit 1
