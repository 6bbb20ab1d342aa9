-- Selects withheld events, with the content of their messages, which a later event of their task overtakes.
-- $1 kinds, $2 biz_ids, $3 versions (text array literals). Of the kinds, events are withheld unless they are visible in
-- snapshot $4, or in $5 with a position up to $6 ('' for no snapshot).
-- Returns rows like unfinished.sql. Locks nothing. Index: primary key, twice for each.
select w.position, w.version, w.attempt, w.shard, w.type::text,
       (extract(epoch from w.recorded_at) * 1e6)::bigint, w.kind, w.biz_id, w.meta::text,
       first.data::text, first.meta::text
  from unnest($1::text::text[], $2::text::text[], $3::text::integer[]) as o(kind, biz_id, version)
 cross join lateral (
   select e.xid, e.position, e.version, e.attempt, e.shard, e.type, e.recorded_at, e.kind, e.biz_id, e.meta
     from taskledger.event e
    where e.kind = o.kind and e.biz_id = o.biz_id and e.version = o.version
    limit 1) w
 cross join lateral (
   select f.data, f.meta
     from taskledger.event f
    where f.kind = o.kind and f.biz_id = o.biz_id and f.version = 1
    limit 1) first
 where w.type in ('enqueued', 'released', 'interrupted')
   and not taskledger.feed_passed(w.xid, w.position, (select taskledger.feed_floor()), $4::text::pg_snapshot,
                                  nullif($5::text, '')::pg_snapshot, $6::bigint)
