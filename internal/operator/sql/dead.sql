-- Dead tasks in groups by kind and by fingerprint of their error, the largest groups first.
-- $1 kind or ''.
-- Returns kind, fingerprint, number of tasks, when the oldest and the newest died, and the error and the biz_id
-- of the newest. Locks nothing. Index: task_dead, which holds only these tasks.
select t.kind, t.fingerprint, count(*), (extract(epoch from min(t.updated_at)) * 1e6)::bigint,
       (extract(epoch from max(t.updated_at)) * 1e6)::bigint,
       coalesce((array_agg(t.error order by t.updated_at desc, t.biz_id))[1], ''),
       (array_agg(t.biz_id order by t.updated_at desc, t.biz_id))[1]
  from taskledger.tasks t
 where t.fingerprint is not null and ($1::text = '' or t.kind = $1::text)
 group by t.kind, t.fingerprint
 order by count(*) desc, t.kind, t.fingerprint
