-- Selects the task whose turn it is in a line, and how many tasks wait.
-- $1 order key, $2 how many are counted. Returns kind, biz_id and state of the task whose turn it is ('': the line is
-- free), since when in microseconds since 1970, the number, and whether there are more.
-- Locks nothing. Indexes: see taskledger_internal.line_before.
select coalesce(b.kind, ''), coalesce(b.biz_id, ''), coalesce(taskledger.state_after(b.type)::text, ''),
       coalesce((extract(epoch from b.since) * 1e6)::bigint, 0), b.waiting, b.is_more
  from taskledger_internal.line_before($1::text, 9223372036854775807, $2::integer) b
