-- Tasks in an exceptional state, newest first.
-- $1 kind or '', $2 state, $3 position before which to begin, $4 maximum number of tasks.
-- $5 beginning of the biz_id, $6 actor and $7 a pattern in the meta of the first event, $8 part of the error, $9 time
-- from which and $10 time before which the task was enqueued, each '' for all; $11 whether to leave out kinds of
-- taskledger; $12 partition, '' for all; $13 beginning of the actor of the last event, '' for all.
-- Locks nothing. Indexes: task_aside; primary key of event.
select e.position, t.kind, t.biz_id, t.shard::integer, t.state::text, t.version, t.attempt, t.failures,
       (extract(epoch from t.enqueued_at) * 1e6)::bigint, (extract(epoch from t.updated_at) * 1e6)::bigint,
       coalesce(t.error, ''), coalesce(t.fingerprint, ''), (extract(epoch from t.due_at) * 1e6)::bigint,
       t.priority::integer, t.partition
  from taskledger.task t
 cross join lateral (
   select f.position, f.actor, f.meta from taskledger.event f
    where f.kind = t.kind and f.biz_id = t.biz_id and f.version = 1
    limit 1) e
 where t.aside = $2::text::taskledger.task_state
   and t.kind between $1::text and coalesce(nullif($1::text, ''), '~') -- after any kind
   and e.position < $3::bigint
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
          where l.kind = t.kind and l.biz_id = t.biz_id and l.version = t.version and starts_with(l.actor, $13::text)))
 order by e.position desc
 limit $4::integer
