-- Selects the paused kinds, and beside them the live workers: the public key of each (hex; '' if it claims its tasks
-- itself), for how many milliseconds it lives after each renewal, how many tasks it may hold, its kinds and shards.
-- Without workers, one row with '' as worker. Locks nothing.
-- Reads the whole small table.
select p.kinds, coalesce(w.worker, ''), coalesce(w.detail->>'key', ''), coalesce(w.term_ms, 0),
       case when w.detail->>'capacity' ~ '^[0-9]{1,6}$' then w.detail->>'capacity' else '0' end::integer,
       coalesce(taskledger.lease_kinds(w.detail), '{}'), coalesce(w.detail->>'shards', 'all')
  from (select coalesce(array_agg(k.kind order by k.kind), '{}') as kinds from taskledger.paused_kinds k) p
  left join taskledger.workers w on w.alive_ms > 0
