-- The last events of tasks, as far as a dispatcher needs them.
-- $1 kinds, $2 biz_ids: text array literals of one length. $3 size up to which args are returned.
-- Returns kind and biz_id; version, type, attempt, shard, priority, position, partition, order key and actor of the
-- last event; and its time in microseconds since 1970, data and meta if it contains the args and they are small
-- (otherwise 0, null and ''); and whether the key was archived before the task was enqueued.
-- Locks nothing. Index: primary key; the lateral limit keeps the planner on it.
select k.kind, k.biz_id, h.version, h.type::text, h.attempt, h.shard, h.priority, h.position, h.partition,
       h.order_key, coalesce(h.actor, ''),
       case when h.has_args then (date_part('epoch', h.recorded_at) * 1e6)::bigint else 0 end,
       case when h.has_args then h.data end, case when h.has_args then coalesce(h.meta::text, '') else '' end,
       h.version = 1 and (select taskledger_internal.archived_until() > 0)
         and taskledger_internal.archived_version(k.kind, k.biz_id) is not null
  from unnest($1::text::text[], $2::text::text[]) as k(kind, biz_id)
 cross join lateral (
   select e.version, e.type, e.attempt, e.shard, e.priority, e.position, e.partition, e.order_key,
          e.actor, e.recorded_at, e.data::text as data, e.meta,
          e.type = 'enqueued' and octet_length(e.data::text) <= $3::bigint as has_args
     from taskledger.event e
    where e.kind = k.kind and e.biz_id = k.biz_id
    order by e.version desc
    limit 1) h
