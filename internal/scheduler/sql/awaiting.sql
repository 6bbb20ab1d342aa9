-- A page of the tasks that wait for their predecessors, by key.
-- $1 kind and $2 biz_id after which to read, $3 number of tasks.
-- Returns for each task whether it has moved on, and version, type and meta of the event that names the predecessors. A
-- task has several rows while a removal is due.
-- Locks nothing. Index: primary key of timer, at its high end; primary key of event, twice for each task.
select w.kind, w.biz_id, w.version, w.has_moved, coalesce(f.run, 0), coalesce(f.type::text, ''), f.meta::text
  from (
    select t.kind, t.biz_id, t.version,
           exists (select from taskledger.event e
                    where e.kind = t.kind and e.biz_id = t.biz_id and e.version > t.version) as has_moved
      from taskledger.timers t
     where (t.due_at, t.kind, t.biz_id) > (taskledger_internal.end_of_time(), $1::text, $2::text) and t.reason = 'after'
     order by t.due_at, t.kind, t.biz_id
     limit $3::integer) w
  left join lateral (
    select e.run, e.type, e.meta from taskledger.event e
     where e.kind = w.kind and e.biz_id = w.biz_id and e.version = w.version and not w.has_moved
     limit 1) f on true
 order by w.kind, w.biz_id, w.version
