-- Selects the lost workers on record, with the running tasks that they hold, by id and kind.
-- $1 number of unfinished tasks that are read, the oldest ones; $2 most rows.
-- Returns the id, when the worker last renewed its lease, the kind ('': it holds no task), the number of tasks, and
-- whether there may be other tasks. Locks nothing. Reads the whole small table. Indexes: task_lingering; primary key of
-- event.
with oldest as materialized (
  select l.kind, l.biz_id, l.version, l.state
    from taskledger_internal.lingering_tasks l
   order by l.enqueued_at, l.kind, l.biz_id
   limit $1::bigint
), held as materialized (
  select e.actor, o.kind, count(*) as tasks
    from oldest o
   cross join lateral (
     select v.actor from taskledger.event v
      where v.kind = o.kind and v.biz_id = o.biz_id and v.version = o.version
      limit 1) e
   where o.state = 'running'
   group by e.actor, o.kind
)
select w.worker,
       (extract(epoch from greatest(w.since, w.alive_until - w.term_ms * interval '1 millisecond')) * 1e6)::bigint,
       coalesce(h.kind, ''), coalesce(h.tasks, 0), (select count(*) from oldest) >= $1::bigint
  from taskledger.workers w
  left join held h on h.actor = w.worker
 where w.alive_ms = 0
 order by w.worker, h.kind
 limit $2::bigint
