-- A page of a window, in position order, by the algorithm of taskledger_internal.feed_page.
-- $1 seen, $2 seen_top, $3 seen_bound, $4 until, $5 top of the window; $6 position to continue after; $7
-- maximum number of events.
-- Locks nothing. Indexes: (xid, position) for each late xid, (position) for the tail; both stop after $7
-- rows in total.
-- The first column is the id of the login. The column of its name is empty, because the feed remembers the names.
select e.login_id, e.position, e.version, e.attempt, e.shard, e.type::text,
       (date_part('epoch', e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, coalesce(e.actor, ''), '', e.data_version, e.priority, coalesce(e.partition, ''),
       coalesce(e.run, 0), coalesce(e.order_key, ''), e.data::text, e.meta::text
  from taskledger_internal.feed_page($1::text::pg_snapshot, $2::bigint, $3::text::xid8, $4::text::pg_snapshot,
                                     $5::bigint, $6::bigint, $7::integer) e
