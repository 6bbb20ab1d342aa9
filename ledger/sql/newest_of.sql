-- Reads the newest events of a task of some types, oldest first.
-- $1 kind, $2 biz_id, $3 types (array literal), $4 version before which the events are, $5 number of events, $6 a text
-- that the data contain; '': any.
-- Locks nothing. Indexes: event_long, backwards, for each type; primary key for the first 64 events. With a text it
-- also reads the newer events without it. The lateral limit keeps the planner on them, whatever the statistics are.
with found as materialized (
  select e.*
    from unnest($3::text::taskledger.event_type[]) as t(type)
   cross join lateral (
     select n.*
       from taskledger.event n
      where n.kind = $1::text and n.biz_id = $2::text and n.type = t.type and n.version > 64
        and n.version < $4::bigint and ($6::text = '' or strpos(n.data::text, $6::text) > 0)
      order by n.version desc
      limit $5::bigint) e
   union all
  (select f.*
     from taskledger.event f
    where f.kind = $1::text and f.biz_id = $2::text and f.version <= 64 and f.version < $4::bigint
      and f.type = any ($3::text::taskledger.event_type[])
      and ($6::text = '' or strpos(f.data::text, $6::text) > 0)
    order by f.version desc
    limit $5::bigint)
), newest as materialized (
  select * from found order by found.version desc limit $5::bigint
)
select e.position, e.version, e.attempt, e.shard, e.type::text, (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, coalesce(e.actor, ''),
       coalesce((select l.name from taskledger.logins l where l.id = e.login_id), ''),
       e.data_version, e.priority, coalesce(e.partition, ''), coalesce(e.run, 0), coalesce(e.order_key, ''),
       e.data::text, e.meta::text
  from newest e
 order by e.version
