-- Tasks whose biz_id begins with a prefix, by key.
-- $1 kind, '' for all kinds with tasks; $2 prefix, $3 kind and $4 biz_id of the task after which to begin, '' for the
-- first; $5 number of tasks to read; $6 state, '' for all.
-- Returns the tasks in that state and the last one read, each with the number of tasks read.
-- Locks nothing. Index: primary key of task, once for each kind until the page is full. The join takes the kinds in
-- their order, because a lateral limit admits a nested loop alone, so the inner limit ends it without a sort of the
-- tasks of all kinds. With an order by next to that limit, a generic plan would read each kind.
select t.kind, t.biz_id, t.shard::integer, t.state::text, t.version, t.attempt, t.failures,
       (extract(epoch from t.enqueued_at) * 1e6)::bigint, (extract(epoch from t.updated_at) * 1e6)::bigint,
       coalesce(t.error, ''), coalesce(t.fingerprint, ''), (extract(epoch from t.due_at) * 1e6)::bigint,
       t.priority::integer, t.partition, t.walked
  from (
   select f.*, count(*) over () as walked,
          row_number() over (order by f.kind desc, f.biz_id desc) as from_the_end
     from (
      select p.*
        from (
         select d.kind
           from (
            select distinct c.kind
              from taskledger.task_counts c
             where $1::text = '' and c.kind >= $3::text
             union all
            select $1::text collate "C" where $1::text <> '' and $1::text collate "C" >= $3::text) d
          order by d.kind
         offset 0) k
       cross join lateral (
         select o.*
           from taskledger.task o
          where o.kind = k.kind
            and o.biz_id >= $2::text and o.biz_id <= $2::text || repeat(chr(1114111), 64)
            and o.biz_id > case when k.kind = $3::text then $4::text else '' end
          order by o.kind, o.biz_id
          limit $5::integer) p
       limit $5::integer) f) t
 where $6::text = '' or t.state::text = $6::text or t.from_the_end = 1
 order by t.kind, t.biz_id
