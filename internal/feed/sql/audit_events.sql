-- The events that audit.sql counts, in its order.
-- $1 since, $2 until; $3 xid and $4 position of the last one read; $5 maximum number of events.
-- Locks nothing. Index: (xid, position).
select e.xid::text, e.position, e.version, e.attempt, e.shard, e.type::text,
       (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, coalesce(e.actor, ''),
       coalesce((select l.name from taskledger.logins l where l.id = e.login_id), ''),
       e.data_version, e.priority, coalesce(e.partition, ''), coalesce(e.run, 0), coalesce(e.order_key, ''),
       e.data::text, e.meta::text
  from taskledger.event e
 where (e.xid, e.position) > ($3::text::xid8, $4::bigint)
   and e.xid >= pg_snapshot_xmin($1::text::pg_snapshot) and e.xid < pg_snapshot_xmax($2::text::pg_snapshot)
   and pg_visible_in_snapshot(e.xid, $2::text::pg_snapshot)
   and not pg_visible_in_snapshot(e.xid, $1::text::pg_snapshot)
   and e.position > (select taskledger_internal.feed_floor())
 order by e.xid, e.position
 limit $5::integer
