-- Selects the task whose turn it is in a line, and how many tasks wait before another task.
-- $1 kind and $2 biz_id of that task, in line; $3 how many are counted.
-- Returns kind, biz_id and last event of the task whose turn it is ('': the line is free), since when in microseconds
-- since 1970, the number, and whether there are more. No row: the task is not in line.
-- Locks nothing. Indexes: primary key; see taskledger_internal.line_before.
select coalesce(b.kind, ''), coalesce(b.biz_id, ''), coalesce(taskledger.state_after(b.type)::text, ''),
       coalesce((extract(epoch from b.since) * 1e6)::bigint, 0), b.waiting, b.is_more
  from (
    select h.order_key, h.position, h.type
      from taskledger.event h
     where h.kind = $1::text and h.biz_id = $2::text
     order by h.version desc
     limit 1) l
 cross join lateral taskledger_internal.line_before(l.order_key, l.position, $3::integer) b
 where l.type = 'lined_up'
