-- Selects the tasks that became available by their first events, as far as no window has delivered these.
-- $1 positions of events: array literal; $2 snapshot of the last window; $3 size up to which args are returned.
-- Returns the columns of heads.sql.
-- Locks nothing. Indexes: position, primary key.
select e.kind, e.biz_id, e.version, e.type::text, e.attempt, e.shard, e.position, coalesce(e.actor, ''),
       case when octet_length(e.data::text) <= $3::bigint then (date_part('epoch', e.recorded_at) * 1e6)::bigint
            else 0 end,
       case when octet_length(e.data::text) <= $3::bigint then e.data::text end,
       case when octet_length(e.data::text) <= $3::bigint then coalesce(e.meta::text, '') else '' end
  from taskledger.event e
 where e.position = any ($1::text::bigint[]) and e.version = 1 and e.type = 'enqueued'
   and not pg_visible_in_snapshot(e.xid, $2::text::pg_snapshot)
   and not exists (
     select from taskledger.event n where n.kind = e.kind and n.biz_id = e.biz_id and n.version = 2)
