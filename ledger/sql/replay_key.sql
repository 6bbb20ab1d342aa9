-- replay.sql for a range of keys with few events: a page of them, in position order.
-- $1 to $15 as there; $16 kind, $17 the first biz_id, $18 the end of the biz_ids.
-- Locks nothing. Indexes: primary key for all events of the keys, then the position of each event of the page.
with found as materialized (
  select e.position
    from taskledger.event e
   where e.kind = $16::text and e.biz_id >= $17::text and e.biz_id < $18::text and e.position > $10::bigint
), page as materialized (
  select f.position, row_number() over (order by f.position) as ordinality
    from found f
   order by f.position
   limit $11::integer
)
select p.ordinality = $11::bigint, m.matches, e.login_id, e.position, e.version, e.attempt, e.shard, e.type::text,
       (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, coalesce(e.actor, ''), '', e.data_version, e.priority, coalesce(e.partition, ''),
       coalesce(e.run, 0), coalesce(e.order_key, ''), e.data::text, e.meta::text
  from page p
 cross join lateral (select n.* from taskledger.event n where n.position = p.position limit 1) e
 cross join lateral (
   select $2::bigint >= 0 and $3::text <> '' and $8::bigint >= 0
      and not taskledger_internal.feed_passed(e.xid, e.position, (select taskledger_internal.feed_floor()),
                                              $1::text::pg_snapshot, $4::text::pg_snapshot, $5::bigint)
      and taskledger_internal.feed_passed(e.xid, e.position, (select taskledger_internal.feed_floor()),
                                          $6::text::pg_snapshot, $7::text::pg_snapshot, $9::bigint)
      and ($12::text = '{}' or e.kind = any($12::text::text[]))
      and ($13::text = '{}' or e.type = any($13::text::taskledger.event_type[]))
      and ($14::text = '' or e.actor = $14::text)
      and ($15::text = '' or starts_with(e.kind || '/' || e.biz_id, $15::text)) as matches
   offset 0) m
 where m.matches or p.ordinality = $11::bigint
 order by p.ordinality
