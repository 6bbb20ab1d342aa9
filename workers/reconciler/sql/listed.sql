-- Selects tasks that may be lost, among the next tasks that the projector lists as lingering: they are running, or
-- became available before a moment, in shards with consumers.
-- $1 enqueued_at in microseconds since 1970, $2 kind, $3 biz_id of the task to continue after; $4 number of tasks to
-- read. $5 kinds with consumers, $6 their shards, one bit each; the moments of $7 tasks that were never made available
-- again, and $8 of others: array literals.
-- Returns enqueued_at, kind and biz_id, whether the task may be lost, and whether it was the last one to be read.
-- Locks nothing. Index: task_lingering.
select (extract(epoch from r.enqueued_at) * 1e6)::bigint, r.kind, r.biz_id, r.may_be_lost, r.is_last
  from (
    select p.enqueued_at, p.kind, p.biz_id, p.i = $4::integer as is_last,
           coalesce((k.shards >> p.shard) & 1 = 1
                    and (p.state = 'running'
                         or p.state = 'available'
                            and p.updated_at <= case when p.version = 1 then k.first else k.again end),
                    false) as may_be_lost
      from (
        select l.*, row_number() over (order by l.enqueued_at, l.kind, l.biz_id) as i
          from (
            select t.enqueued_at, t.kind, t.biz_id, t.shard, t.state, t.version, t.updated_at
              from taskledger.lingering_tasks t
             where (t.enqueued_at, t.kind, t.biz_id)
                   > ('epoch'::timestamptz + $1::bigint * interval '1 microsecond', $2::text, $3::text)
             order by t.enqueued_at, t.kind, t.biz_id
             limit $4::integer) l) p
      left join unnest($5::text::text[], $6::text::bigint[], $7::text::timestamptz[], $8::text::timestamptz[])
                  as k(kind, shards, first, again) on k.kind = p.kind) r
 where r.may_be_lost or r.is_last
 order by r.enqueued_at, r.kind, r.biz_id
