-- A page of a window, in position order. The window is fixed for ever, so a page can be read
-- again, and ahead, from any connection to the primary.
-- $1 seen, $2 seen_top, $3 seen_bound, $4 until, $5 top of the window; $6 position to go on
-- after; $7 how many at most.
--
-- late: positions drawn before the window's lower snapshot by transactions then unfinished.
--   Their xid is among late_xids: each insert draws its xid before its position, so a position
--   <= seen_top has an xid < seen_bound.
-- tail: positions drawn since.
--
-- Locks nothing. Indexes: (xid, position) for each late xid, (position) for the tail; both
-- stop after $7 rows. The lateral keeps the planner from walking positions to look for xids.
select e.position, e.version, e.attempt, e.shard, e.type::text, e.recorded_at, e.kind, e.biz_id,
       coalesce(e.actor, ''), e.data::text, e.meta::text
  from (
   (select l.*
      from taskledger.late_xids($1::text::pg_snapshot, $3::text::xid8) x
     cross join lateral (
       select e.position, e.version, e.attempt, e.shard, e.type, e.recorded_at, e.kind, e.biz_id, e.actor, e.data, e.meta
         from taskledger.event e
        where e.xid = x and e.position > $6::bigint and e.position <= $2::bigint
        order by e.position
        limit $7::integer) l
     where pg_visible_in_snapshot(x, $4::text::pg_snapshot))
    union all
   (select e.position, e.version, e.attempt, e.shard, e.type, e.recorded_at, e.kind, e.biz_id, e.actor, e.data, e.meta
      from taskledger.event e
     where e.position > greatest($6::bigint, $2::bigint) and e.position <= $5::bigint
       and pg_visible_in_snapshot(e.xid, $4::text::pg_snapshot)
     order by e.position
     limit $7::integer)) e
 order by e.position
 limit $7::integer
