-- The next events from one position to another, in the order of positions, with the columns of events.sql and
-- the transaction id.
-- $1 position, $2 last position, $3 kinds (array literal; empty: all), $4 number of events. Locks nothing. Index:
-- (position). The parameters are columns of a subquery: as constants, without statistics of the newest events, they
-- would make PostgreSQL read the whole range and sort it for each page.
select e.position, e.kind, e.biz_id, e.version, e.run, e.attempt, e.type::text,
       greatest(least(extract(epoch from e.recorded_at) * 1e6, 9223372036854775807), -9223372036854775807)::bigint,
       e.login_id, e.shard, e.data_version, e.priority, e.order_key, e.partition, e.data::text, e.meta::text, e.actor,
       e.xid::text::bigint
  from (select $1::bigint as first, $2::bigint as last, $3::text as kinds, $4::bigint as how_many offset 0) p
 cross join lateral (
   select n.*
     from taskledger.event n
    where n.position >= p.first and n.position <= p.last and (p.kinds = '{}' or n.kind = any (p.kinds::text[]))
    order by n.position
    limit p.how_many) e
