-- The running tasks of a kind without news since a time, by the actor of their last event, the longest silence first.
-- $1 number of unfinished tasks that are read, the oldest ones; $2 kind; $3 time of the last event, or earlier.
-- Locks nothing. Indexes: task_lingering; primary key of event.
select e.actor, count(*), (extract(epoch from min(o.updated_at)) * 1e6)::bigint
  from (select l.kind, l.biz_id, l.version, l.state, l.updated_at
          from taskledger_internal.lingering_tasks l
         order by l.enqueued_at, l.kind, l.biz_id
         limit $1::bigint) o
 cross join lateral (
   select v.actor from taskledger.event v
    where v.kind = o.kind and v.biz_id = o.biz_id and v.version = o.version
    limit 1) e
 where o.state = 'running' and o.kind = $2::text and o.updated_at <= $3::text::timestamptz
 group by e.actor
 order by min(o.updated_at), e.actor
