-- The events from one position to another, in the order of positions, with the columns of events.sql; at most a number
-- of them, and further events with the last one's position. The first column is whether a snapshot sees the event;
-- events up to the floor and events without a transaction ID count as seen.
-- $1 position, $2 last position, $3 number of events, $4 snapshot. Locks nothing. Index: (position).
select coalesce(e.position <= f.floor or pg_visible_in_snapshot(e.xid, $4::text::pg_snapshot), true),
       e.position, e.kind, e.biz_id, e.version, e.run, e.attempt, e.type::text,
       greatest(least(extract(epoch from e.recorded_at) * 1e6, 9223372036854775807), -9223372036854775807)::bigint,
       e.login_id, e.shard, e.data_version, e.priority, e.order_key, e.partition, e.data::text, e.meta::text, e.actor
  from (select taskledger_internal.feed_floor() as floor) f
 cross join lateral (
   select n.* from taskledger.event n
    where n.position >= $1::bigint and n.position <= $2::bigint
    order by n.position
    fetch first ($3::bigint) rows with ties) e
 order by e.position
