-- Counts the events between two places by kind and type.
-- $1 seen, $2 until, $3 after_position of the first place; $4 seen, $5 until, $6 after_position, $7 top of the last
-- one; $8 kinds and $9 types (array literals), $10 actor, $11 prefix of kind/biz_id; empty: any; $12
-- position after which to begin.
-- Returns kind, type, number of events, bytes of args, data and meta, and the first and the last time in microseconds.
-- Locks nothing. Reads all events up to $7. The subqueries make the server parse the snapshots once.
select e.kind, e.type::text, count(*),
       coalesce(sum(octet_length(e.data::text)), 0)::bigint + coalesce(sum(octet_length(e.meta::text)), 0)::bigint,
       (extract(epoch from min(e.recorded_at)) * 1e6)::bigint, (extract(epoch from max(e.recorded_at)) * 1e6)::bigint
  from taskledger.event e
 where e.position <= $7::bigint and e.position > $12::bigint
   and taskledger_internal.feed_passed(e.xid, e.position, (select taskledger_internal.feed_floor()),
                                       (select $4::text::pg_snapshot), (select $5::text::pg_snapshot),
                                       $6::bigint)
   and not taskledger_internal.feed_passed(e.xid, e.position, (select taskledger_internal.feed_floor()),
                                           (select $1::text::pg_snapshot), (select $2::text::pg_snapshot),
                                           $3::bigint)
   and ($8::text = '{}' or e.kind = any($8::text::text[]))
   and ($9::text = '{}' or e.type = any($9::text::taskledger.event_type[]))
   and ($10::text = '' or e.actor = $10::text)
   and ($11::text = '' or starts_with(e.kind || '/' || e.biz_id, $11::text))
 group by e.kind, e.type
 order by e.kind, e.type
