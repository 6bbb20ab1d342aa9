-- Selects tasks of a kind that may be lost, among its next tasks in the projection, finished ones included: they are
-- running, or became available before a moment, in shards with consumers.
-- $1 kind, $2 biz_id to continue after, $3 number of tasks to read, $4 shards, one bit each; the moments of $5 tasks
-- that were never made available again, and $6 of others.
-- Returns biz_id, whether the task may be lost, and whether it was the last one to be read.
-- Locks nothing. Index: primary key of task.
select r.biz_id, r.may_be_lost, r.is_last
  from (
    select p.biz_id, p.i = $3::integer as is_last,
           ($4::bigint >> p.shard) & 1 = 1
           and (p.state = 'running'
                or p.state = 'available'
                   and p.updated_at <= case when p.version = 1 then $5::text::timestamptz
                                            else $6::text::timestamptz end) as may_be_lost
      from (
        select l.*, row_number() over (order by l.biz_id) as i
          from (
            select t.biz_id, t.shard, t.state, t.version, t.updated_at
              from taskledger.tasks t
             where t.kind = $1::text and t.biz_id > $2::text
             order by t.biz_id
             limit $3::integer) l) p) r
 where r.may_be_lost or r.is_last
 order by r.biz_id
