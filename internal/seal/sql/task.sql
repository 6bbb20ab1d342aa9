-- The next events of a task, each with its leaf and its salt or digest in hexadecimal; -1 and '' for an event that is
-- not sealed. Then the columns of events.sql.
-- $1 kind, $2 biz_id, $3 version to continue after, $4 number of events. Locks nothing. Indexes: primary key of event,
-- as taskledger_internal.sealed_leaf, primary keys of seal and seal_rest.
select coalesce(l.leaf, -1),
       coalesce((select encode(s.salts[l.place], 'hex') from taskledger.seal s where s.batch = l.batch),
                (select encode(r.salt, 'hex') from taskledger.seal_rest r where r.position = e.position), ''),
       e.position, e.kind, e.biz_id, e.version, e.run, e.attempt, e.type::text,
       greatest(least(extract(epoch from e.recorded_at) * 1e6, 9223372036854775807), -9223372036854775807)::bigint,
       e.login_id, e.shard, e.data_version, e.priority, e.order_key, e.partition, e.data::text, e.meta::text, e.actor
  from (
   select n.* from taskledger.event n
    where n.kind = $1::text and n.biz_id = $2::text and n.version > $3::bigint
    order by n.version
    limit $4::bigint) e
  left join lateral taskledger_internal.sealed_leaf(e.position) l on true
 order by e.version
