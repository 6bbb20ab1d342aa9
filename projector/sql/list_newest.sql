-- Tasks, newest first, read from the ledger backwards over a bounded number of events.
-- $1 kind or '', $2 state or '', $3 position before which to begin, $4 maximum number of events to read, $5
-- maximum number of tasks.
-- Locks nothing. Indexes: (position) of event, primary key of task. Ends as soon as $5 are found.
select e.position, t.kind, t.biz_id, t.shard::integer, t.state::text, t.version, t.attempt, t.failures,
       (extract(epoch from t.enqueued_at) * 1e6)::bigint, (extract(epoch from t.updated_at) * 1e6)::bigint,
       coalesce(t.error, ''), coalesce(t.fingerprint, ''), (extract(epoch from t.due_at) * 1e6)::bigint
  from (
   select w.position, w.kind, w.biz_id, w.version
     from taskledger.event w
    where w.position < $3::bigint
    order by w.position desc
    limit $4::integer) e
 cross join lateral (
   select c.kind, c.biz_id, c.shard, c.state, c.version, c.attempt, c.failures, c.enqueued_at, c.updated_at,
          c.error, c.fingerprint, c.due_at
     from taskledger.task c
    where c.kind = e.kind and c.biz_id = e.biz_id
    limit 1) t
 where e.version = 1
   and ($1::text = '' or e.kind = $1::text)
   and ($2::text = '' or t.state = nullif($2::text, '')::taskledger.task_state)
 order by e.position desc
 limit $5::integer
