-- The tasks whose timers are due from a moment on.
-- $1 moment at which to start, $2 maximum number of timers; $3 keys (kind/biz_id) to leave out, as text array
-- literal. Returns kind, biz_id and due_at of each.
-- Locks nothing. Index: primary key of timer, see settings.sql.
select t.kind, t.biz_id, (extract(epoch from t.due_at) * 1e6)::bigint
  from taskledger.timers t
 where t.due_at >= greatest($1::text::timestamptz, '1970-01-01 00:00:00+00') and t.due_at <= (select clock_timestamp())
   and t.kind || '/' || t.biz_id not in (select unnest($3::text::text[]))
 order by t.due_at, t.kind, t.biz_id, t.version, t.reason
 limit $2::integer
