-- Tasks, newest first, read from the ledger backwards over a bounded number of events.
-- $1 kind or '', $2 state or '', $3 position before which to begin, $4 maximum number of tasks.
-- $5 beginning of the biz_id, $6 actor and $7 a pattern in the meta of the first event, $8 part of the error, $9 time
-- from which and $10 time before which the task was enqueued, each '' for all; $11 whether to leave out kinds of
-- taskledger; $12 partition, '' for all; $13 beginning of the actor of the last event, '' for all.
-- $14 maximum number of events to read, $15 position after which to end.
-- If fewer are found, the last row is not a task: its version is 0, and its position is the last event read. Without
-- this row the walk has reached the end. Both come from one snapshot, so that no task is listed twice.
-- Locks nothing. Indexes: (position) of event, primary key of task. Ends as soon as $4 are found.
with found as materialized (
  select e.position, t.kind, t.biz_id, t.shard::integer, t.state::text, t.version, t.attempt, t.failures,
         (extract(epoch from t.enqueued_at) * 1e6)::bigint, (extract(epoch from t.updated_at) * 1e6)::bigint,
         coalesce(t.error, ''), coalesce(t.fingerprint, ''), (extract(epoch from t.due_at) * 1e6)::bigint,
         t.priority::integer, t.partition
    from (
     select w.position, w.kind, w.biz_id, w.version, w.actor, w.meta
       from taskledger.event w
      where w.position < $3::bigint and w.position > $15::bigint
      order by w.position desc
      limit $14::integer) e
   cross join lateral (
     select c.kind, c.biz_id, c.shard, c.state, c.version, c.attempt, c.failures, c.enqueued_at, c.updated_at,
            c.error, c.fingerprint, c.due_at, c.priority, c.partition
       from taskledger.task c
      where c.kind = e.kind and c.biz_id = e.biz_id
      limit 1) t
   where e.version = 1
     and ($1::text = '' or e.kind = $1::text)
     and ($2::text = '' or t.state = nullif($2::text, '')::taskledger.task_state)
     and ($5::text = '' or starts_with(t.biz_id, $5::text))
     and ($6::text = '' or e.actor = $6::text)
     and ($7::text = '' or e.meta::text ~ $7::text)
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
select w.position, '', '', 0, '', 0, 0, 0, null, null, '', '', null, 0, ''
  from (
   select e.position from taskledger.event e
    where e.position < $3::bigint and e.position > $15::bigint
    order by e.position desc
   offset $14::integer - 1
    limit 1) w
 where (select count(*) from found) < $4::integer
