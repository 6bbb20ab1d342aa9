-- A page of the events between two places, in position order, as feed_page reads it. Returns the matching
-- events, and the last event of the page in any case: first whether an event ends the page, whether it matches, and
-- the id of its login. The column of its login's name is empty.
-- $1 seen, $2 seen_top, $3 seen_bound, $4 until, $5 after_position of the first place; $6 seen, $7 until, $8 top, $9
-- after_position of the last one; $10 position to continue after, $11 number of events to read; $12 kinds and $13 types
-- (array literals), $14 actor, $15 prefix of kind/biz_id; empty: any.
-- Locks nothing. Indexes: as feed_page.
select p.ordinality = $11::bigint, m.matches, p.login_id, p.position, p.version, p.attempt, p.shard, p.type::text,
       (extract(epoch from p.recorded_at) * 1e6)::bigint,
       p.kind, p.biz_id, coalesce(p.actor, ''), '', p.data_version, p.priority, coalesce(p.partition, ''),
       coalesce(p.run, 0), coalesce(p.order_key, ''), p.data::text, p.meta::text
  from taskledger_internal.feed_page($1::text::pg_snapshot, $2::bigint, $3::text::xid8, $7::text::pg_snapshot,
                                     $8::bigint, $10::bigint, $11::integer) with ordinality p
 cross join lateral (
   select not taskledger_internal.feed_passed(p.xid, p.position, (select taskledger_internal.feed_floor()),
                                              $1::text::pg_snapshot, $4::text::pg_snapshot, $5::bigint)
      and taskledger_internal.feed_passed(p.xid, p.position, (select taskledger_internal.feed_floor()),
                                          $6::text::pg_snapshot, $7::text::pg_snapshot, $9::bigint)
      and ($12::text = '{}' or p.kind = any($12::text::text[]))
      and ($13::text = '{}' or p.type = any($13::text::taskledger.event_type[]))
      and ($14::text = '' or p.actor = $14::text)
      and ($15::text = '' or starts_with(p.kind || '/' || p.biz_id, $15::text)) as matches
   offset 0) m
 where m.matches or p.ordinality = $11::bigint
