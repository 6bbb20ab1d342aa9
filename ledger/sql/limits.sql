-- The limits of all kinds that have one, with how many of their tasks wait as far as projected.
-- Locks nothing. Reads the whole small table; a count is one row of its index.
select o.kind, o.max_waiting, o.policy, o.retry_after_ms, o.waiting
  from taskledger.overload o
 order by o.kind
