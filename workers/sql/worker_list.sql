-- Selects the workers that are live, or were lost within about a day, by id.
-- $1 the id before the first result ('': from the beginning), $2 the maximum number of workers.
-- Returns the id, its beginning, for how many milliseconds its lease is still valid (0: lost), the members of the
-- lease's detail by their exact names (Go's decoder would also accept KINDS), and the paused kinds as JSON.
-- Locks nothing. Reads two whole small tables.
select w.worker, (extract(epoch from w.since) * 1e6)::bigint, w.alive_ms,
       json_build_object('kinds', w.detail->'kinds', 'guarantees', w.detail->'guarantees', 'shards', w.detail->'shards',
                         'load', w.detail->'load', 'version', w.detail->'version', 'names', w.detail->'names')::text,
       coalesce((select json_agg(p.kind) from taskledger.paused_kinds p), '[]')::text
  from taskledger.workers w
 where w.worker > $1::text
 order by w.worker
 limit $2::bigint
