-- The events of some tasks, in the order of positions, with the columns of events.sql and
-- the transaction id.
-- $1 kinds and $2 biz_ids (array literals). Locks nothing. Index: primary key of event.
select e.position, e.kind, e.biz_id, e.version, e.run, e.attempt, e.type::text,
       greatest(least(extract(epoch from e.recorded_at) * 1e6, 9223372036854775807), -9223372036854775807)::bigint,
       e.login_id, e.shard, e.data_version, e.priority, e.order_key, e.partition, e.data::text, e.meta::text, e.actor,
       e.xid::text::bigint
  from unnest($1::text::text[], $2::text::text[]) k(kind, biz_id)
 cross join lateral (
   select n.* from taskledger.event n where n.kind = k.kind and n.biz_id = k.biz_id order by n.version offset 0) e
 where e.position is not null
 order by e.position
