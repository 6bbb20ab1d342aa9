-- Reads all limits, with the number of waiting tasks as the projector has counted it.
-- Locks nothing. Scans the table of limits, which is small, and reads one index row per kind for the count.
select o.kind, o.max_waiting, o.policy, o.retry_after_ms, o.waiting
  from taskledger.overload o
 order by o.kind
