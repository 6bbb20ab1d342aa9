-- Selects lines that stand because the task whose turn it is is dead, the newest first.
-- $1 maximum number. Returns order key, kind and biz_id of the task, the time of its death, and whether there may be
-- lines that were not examined.
-- Locks nothing. Indexes: see taskledger_internal.stopped_lines.
select l.order_key, l.kind, l.biz_id, (extract(epoch from l.since) * 1e6)::bigint, l.is_more
  from taskledger_internal.stopped_lines($1::integer) l
