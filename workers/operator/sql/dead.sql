-- Dead tasks by kind and by what they are dead of, the largest groups first.
-- $1 kind or ''.
-- Answers kind, fingerprint, how many, when the oldest and the newest died, and of the newest its
-- error and biz_id. Locks nothing. Index: task_dead, which holds these tasks only.
select t.kind, t.fingerprint, count(*), min(t.updated_at), max(t.updated_at),
       coalesce((array_agg(t.error order by t.updated_at desc, t.biz_id))[1], ''),
       (array_agg(t.biz_id order by t.updated_at desc, t.biz_id))[1]
  from taskledger.task t
 where t.fingerprint is not null and ($1::text = '' or t.kind = $1::text)
 group by t.kind, t.fingerprint
 order by count(*) desc, t.kind, t.fingerprint
