-- Reads the events of a task up to a place, in order.
-- $1 kind, $2 biz_id; $3 seen, $4 until, $5 after_position of the place. Locks nothing. Index: primary key.
select e.position, e.version, e.attempt, e.shard, e.type::text, (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, coalesce(e.actor, ''),
       coalesce((select l.name from taskledger.logins l where l.id = e.login_id), ''),
       e.data_version, e.data::text, e.meta::text
  from taskledger.event e
 where e.kind = $1::text and e.biz_id = $2::text
   and taskledger_internal.feed_passed(e.xid, e.position, (select taskledger_internal.feed_floor()),
                                       $3::text::pg_snapshot, $4::text::pg_snapshot, $5::bigint)
 order by e.version
