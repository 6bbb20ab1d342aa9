-- Tasks in an exceptional state, newest first.
-- $1 kind or '', $2 state, $3 position before which to begin, $4 maximum number of tasks.
-- Locks nothing. Indexes: task_aside, which holds these tasks only; primary key of event.
select e.position, t.kind, t.biz_id, t.shard::integer, t.state::text, t.version, t.attempt, t.failures,
       (extract(epoch from t.enqueued_at) * 1e6)::bigint, (extract(epoch from t.updated_at) * 1e6)::bigint,
       coalesce(t.error, ''), coalesce(t.fingerprint, ''), (extract(epoch from t.due_at) * 1e6)::bigint
  from taskledger.task t
 cross join lateral (
   select f.position from taskledger.event f
    where f.kind = t.kind and f.biz_id = t.biz_id and f.version = 1
    limit 1) e
 where t.aside and t.state = $2::text::taskledger.task_state
   and ($1::text = '' or t.kind = $1::text)
   and e.position < $3::bigint
 order by e.position desc
 limit $4::integer
