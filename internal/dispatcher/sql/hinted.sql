-- Selects the tasks that became available when they were enqueued, unless a window has delivered these events.
-- $1 positions of events: array literal; $2 snapshot of the last window; $3 size up to which args are returned.
-- Returns the columns of heads.sql. A task whose key was archived is left out: the feed delivers its event, too.
-- Locks nothing. Indexes: position, primary key; the limits keep the planner on them, even if the table was small when
-- the plan was made.
select e.kind, e.biz_id, e.version, e.type::text, e.attempt, e.shard, e.priority, e.position, e.partition,
       e.order_key, coalesce(e.actor, ''),
       case when e.has_args then (date_part('epoch', e.recorded_at) * 1e6)::bigint else 0 end,
       case when e.has_args then e.data end, case when e.has_args then coalesce(e.meta::text, '') else '' end
  from unnest($1::text::bigint[]) as p(position)
 cross join lateral (
   select e.kind, e.biz_id, e.version, e.type, e.attempt, e.shard, e.priority, e.position, e.partition,
          e.order_key, e.actor, e.recorded_at, e.xid, e.data::text as data, e.meta,
          octet_length(e.data::text) <= $3::bigint as has_args
     from taskledger.event e
    where e.position >= p.position
    order by e.position
    limit 1) e
 cross join lateral (
   select n.version
     from taskledger.event n
    where n.kind = e.kind and n.biz_id = e.biz_id
    order by n.version desc
    limit 1) last
 where e.position = p.position and e.type = 'enqueued' and last.version = e.version
   and (e.version > 1 or (select taskledger_internal.archived_until() = 0)
        or taskledger_internal.archived_version(e.kind, e.biz_id) is null)
   and not pg_visible_in_snapshot(e.xid, $2::text::pg_snapshot)
