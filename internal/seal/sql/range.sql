-- The next events from one position to another, in the order of positions, with the columns of events.sql and
-- the transaction id.
-- $1 position, $2 last position, $3 kinds (array literal; empty: all), $4 number of events. Locks nothing. Index:
-- (position).
select e.position, e.kind, e.biz_id, e.version, e.run, e.attempt, e.type::text,
       greatest(least(extract(epoch from e.recorded_at) * 1e6, 9223372036854775807), -9223372036854775807)::bigint,
       e.login_id, e.shard, e.data_version, e.priority, e.order_key, e.partition, e.data::text, e.meta::text, e.actor,
       e.xid::text::bigint
  from taskledger.event e
 where e.position >= $1::bigint and e.position <= $2::bigint
   and ($3::text = '{}' or e.kind = any ($3::text::text[]))
 order by e.position
 limit $4::bigint
