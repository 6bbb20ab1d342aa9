-- The tasks of keys: the first events of a finished task, the last event of another task, without data.
-- $1 kinds, $2 biz_ids: text array literals of one length; $3 number of events.
-- Each row begins with the number of the key, from 1, and whether its task is finished; the rows of a task are in the
-- order of its events. No row for a key without a task.
-- Locks nothing. Index: primary key, for the head backwards. A subquery hides the lists from the planner, so that one
-- plan serves all of them.
select k.i, head.is_finished,
       e.position, e.version, e.attempt, e.shard, e.type::text, (extract(epoch from e.recorded_at) * 1e6)::bigint,
       e.kind, e.biz_id, coalesce(e.actor, ''),
       coalesce((select l.name from taskledger.logins l where l.id = e.login_id), ''),
       e.data_version, e.priority, coalesce(e.partition, ''), coalesce(e.run, 0), coalesce(e.order_key, ''),
       case when head.is_finished then e.data::text end, case when head.is_finished then e.meta::text end
  from unnest((select $1::text::text[]), (select $2::text::text[])) with ordinality as k(kind, biz_id, i)
 cross join lateral (
   select h.version, h.type in ('succeeded', 'buried', 'cancelled', 'expired', 'discarded') as is_finished
     from taskledger.event h
    where h.kind = k.kind and h.biz_id = k.biz_id
    order by h.version desc
    limit 1) head
 cross join lateral (
   select f.*
     from taskledger.event f
    where f.kind = k.kind and f.biz_id = k.biz_id
      and f.version >= case when head.is_finished then 1 else head.version end
    order by f.version
    limit $3::bigint) e
 order by k.i, e.version
