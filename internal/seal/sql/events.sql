-- The events at some positions, with the columns that a leaf covers. A time beyond the range of bigint, such as
-- infinity, becomes the end of the range, so that a forged time is reported and is not an error.
-- $1 positions (array literal). Locks nothing. Index: (position).
select e.position, e.kind, e.biz_id, e.version, e.run, e.attempt, e.type::text,
       greatest(least(extract(epoch from e.recorded_at) * 1e6, 9223372036854775807), -9223372036854775807)::bigint,
       e.login_id, e.shard, e.data_version, e.priority, e.order_key, e.partition, e.data::text, e.meta::text, e.actor
  from unnest($1::text::bigint[]) p(position)
 cross join lateral (select n.* from taskledger.event n where n.position = p.position limit 1) e
 order by e.position
