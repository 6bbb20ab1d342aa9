-- Dead tasks in groups by fingerprint of their error and by kind, a page of groups at a time, in this order.
-- $1 fingerprint and $2 kind of the group after which to begin, '' for the first; $3 maximum number of groups;
-- $4 maximum number of tasks to read of each group; $5 kind, '' for all; $6 beginning of the hours, or null.
-- Returns kind, fingerprint, number of tasks read and whether there are more; and for the tasks read, when the oldest
-- and the newest died, the error and the biz_id of the newest, and how many died in each of 24 hours (JSON, by the
-- number of the hour from 0; -1: before).
-- Locks nothing. Index: task_dead, once for each group and task that is read, and with $5 over the entries of other
-- kinds. An index by time would end the HOT updates of all tasks.
with recursive found as (
  (select t.fingerprint, t.kind, 1 as n
     from taskledger.tasks t
    where t.fingerprint is not null and (t.fingerprint, t.kind) > ($1::text, $2::text)
      -- the upper bound for all kinds is above each of them
      and t.kind between $5::text and coalesce(nullif($5::text, ''), repeat(chr(1114111), 64))
    order by t.fingerprint, t.kind
    limit 1)
  union all
  select next.fingerprint, next.kind, f.n + 1
    from found f
   cross join lateral (
     select t.fingerprint, t.kind
       from taskledger.tasks t
      where t.fingerprint is not null and (t.fingerprint, t.kind) > (f.fingerprint, f.kind)
        and t.kind between $5::text and coalesce(nullif($5::text, ''), repeat(chr(1114111), 64))
      order by t.fingerprint, t.kind
      limit 1) next
   where f.n < $3::integer
)
select f.kind, f.fingerprint, least(g.tasks, $4::bigint), g.tasks > $4::bigint,
       (extract(epoch from g.oldest) * 1e6)::bigint, (extract(epoch from g.newest) * 1e6)::bigint,
       coalesce(g.error, ''), g.example, coalesce(g.hours, '{}')
  from found f
 cross join lateral (
   select sum(b.tasks)::bigint as tasks, min(b.oldest) as oldest, max(b.newest) as newest,
          (array_agg(b.error order by b.newest desc, b.example))[1] as error,
          (array_agg(b.example order by b.newest desc, b.example))[1] as example,
          json_object_agg(b.hour, b.tasks)::text as hours
     from (
      select d.hour, count(*) as tasks, min(d.updated_at) as oldest, max(d.updated_at) as newest,
             (array_agg(d.error order by d.updated_at desc, d.biz_id))[1] as error,
             (array_agg(d.biz_id order by d.updated_at desc, d.biz_id))[1] as example
        from (
         select t.updated_at, t.error, t.biz_id,
                least(greatest(floor(extract(epoch from t.updated_at - $6::text::timestamptz) / 3600), -1), 23) as hour
           from taskledger.tasks t
          where t.fingerprint = f.fingerprint and t.kind = f.kind
          order by t.biz_id
          limit $4::bigint + 1) d
       group by d.hour) b) g
 order by f.n
