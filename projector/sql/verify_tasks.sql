-- The projected tasks between two keys, in key order.
-- $1 kind and $2 biz_id after which to begin; $3, $4 the last key, or '' for no end.
-- Locks nothing. Index: primary key.
select t.kind, t.biz_id, t.shard::integer, t.state::text, coalesce(t.aside::text, ''), t.version, t.attempt, t.failures,
       (extract(epoch from t.enqueued_at) * 1e6)::bigint, (extract(epoch from t.updated_at) * 1e6)::bigint,
       coalesce(t.error, ''), coalesce(t.fingerprint, ''), (extract(epoch from t.due_at) * 1e6)::bigint,
       coalesce(t.cause, ''), t.priority, t.partition
  from taskledger.task t
 where (t.kind, t.biz_id) > ($1::text, $2::text)
   and ($3::text = '' or (t.kind, t.biz_id) <= ($3::text, $4::text))
 order by t.kind, t.biz_id
