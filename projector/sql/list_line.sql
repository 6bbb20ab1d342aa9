-- Tasks with an order key, the last lined up or scheduled first, read backwards over a bounded number of such events.
-- $1 kind or '', $2 state or '', $3 position before which to begin, $4 maximum number of tasks.
-- $5 beginning of the biz_id, $6 actor and $7 a pattern in the meta of the first event, $8 part of the error, $9 time
-- from which and $10 time before which the task was enqueued, each '' for all; $11 whether to leave out kinds of
-- taskledger; $12 partition, '' for all; $13 beginning of the actor of the last event, '' for all.
-- $14 maximum number of events to read, $15 order key.
-- A task is listed at its newest event that lines it up, schedules it or begins a run. The last column is the position
-- of that event. If fewer are found, the last row is not a task: its version is 0, and its last column is the position
-- of the last event read. Without this row the walk has reached the end. Both come from one snapshot.
-- Locks nothing. Indexes: event_line and event_line_scheduled, at most $14 rows of each; primary keys of event and
-- task.
with found as materialized (
  select f.position, t.kind, t.biz_id, t.shard::integer, t.state::text, t.version, t.attempt, t.failures,
         (extract(epoch from t.enqueued_at) * 1e6)::bigint, (extract(epoch from t.updated_at) * 1e6)::bigint,
         coalesce(t.error, ''), coalesce(t.fingerprint, ''), (extract(epoch from t.due_at) * 1e6)::bigint,
         t.priority::integer, t.partition, e.position as place
    from (
     select u.position, u.kind, u.biz_id, u.version
       from (
        (select w.position, w.kind, w.biz_id, w.version
           from taskledger.event w
          where w.order_key = $15::text and w.type = 'lined_up' and w.position < $3::bigint
          order by w.position desc
          limit $14::integer)
         union all
        (select w.position, w.kind, w.biz_id, w.version
           from taskledger.event w
          where w.order_key = $15::text and w.type = 'scheduled' and w.position < $3::bigint
          order by w.position desc
          limit $14::integer)) u
      order by u.position desc
      limit $14::integer) e
   cross join lateral (
     select l.version
       from taskledger.event l
      where l.kind = e.kind and l.biz_id = e.biz_id and (l.type in ('lined_up', 'scheduled') or l.run is not null)
      order by l.version desc
      limit 1) p
   cross join lateral (
     select c.kind, c.biz_id, c.shard, c.state, c.version, c.attempt, c.failures, c.enqueued_at, c.updated_at,
            c.error, c.fingerprint, c.due_at, c.priority, c.partition
       from taskledger.task c
      where c.kind = e.kind and c.biz_id = e.biz_id
      limit 1) t
   cross join lateral (
     select f.position, f.actor, f.meta
       from taskledger.event f
      where f.kind = e.kind and f.biz_id = e.biz_id and f.version = 1
      limit 1) f
   where p.version = e.version
     and ($1::text = '' or t.kind = $1::text)
     and ($2::text = '' or t.state = nullif($2::text, '')::taskledger.task_state)
     and ($5::text = '' or starts_with(t.biz_id, $5::text))
     and ($6::text = '' or f.actor = $6::text)
     and ($7::text = '' or f.meta::text ~ $7::text)
     and ($8::text = '' or position($8::text in t.error) > 0)
     and ($9::text = '' or t.enqueued_at >= nullif($9::text, '')::timestamptz)
     and ($10::text = '' or t.enqueued_at < nullif($10::text, '')::timestamptz)
     and not ($11::text::boolean and starts_with(t.kind, 'taskledger.'))
     and ($12::text = '' or t.partition = $12::text)
     and ($13::text = '' or exists (
           select from taskledger.event l
            where l.kind = t.kind and l.biz_id = t.biz_id and l.version = t.version
              and starts_with(l.actor, $13::text)))
   order by e.position desc
   limit $4::integer
)
select f.* from found f
 union all
select 0, '', '', 0, '', 0, 0, 0, null, null, '', '', null, 0, '', w.position
  from (
   select u.position
     from (
      (select e.position
         from taskledger.event e
        where e.order_key = $15::text and e.type = 'lined_up' and e.position < $3::bigint
        order by e.position desc
        limit $14::integer)
       union all
      (select e.position
         from taskledger.event e
        where e.order_key = $15::text and e.type = 'scheduled' and e.position < $3::bigint
        order by e.position desc
        limit $14::integer)) u
    order by u.position desc
   offset $14::integer - 1
    limit 1) w
 where (select count(*) from found) < $4::integer
