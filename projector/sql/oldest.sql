-- Selects when the oldest available task of each kind became available, and when the running one without news for the
-- longest time had its last event.
-- $1 number of unfinished tasks that are read, the oldest ones. Locks nothing. Index: task_lingering.
select o.kind, o.state = 'running', (extract(epoch from min(o.updated_at)) * 1e6)::bigint
  from (select l.kind, l.state, l.updated_at
          from taskledger_internal.lingering_tasks l
         order by l.enqueued_at, l.kind, l.biz_id
         limit $1::bigint) o
 where o.state in ('available', 'running')
 group by o.kind, o.state
 order by o.kind, o.state
