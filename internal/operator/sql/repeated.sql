-- Selects the tasks whose attempts live workers repeat without an event, those repeated most often first.
-- $1 maximum number of tasks. Returns kind, biz_id, how often in a row, since when, and the last error.
-- Locks nothing. Reads the whole small table of leases.
select r.kind, r.biz_id, r.times, (extract(epoch from r.since) * 1e6)::bigint, coalesce(r.error, '')
  from taskledger.workers w
 cross join lateral json_to_recordset(coalesce(w.detail->'repeating', '[]'::json))
   as r(kind text, biz_id text, times integer, since timestamptz, error text)
 where w.alive_ms > 0
 order by r.times desc, r.kind, r.biz_id
 limit $1::integer
