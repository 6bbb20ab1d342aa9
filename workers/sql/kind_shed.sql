-- The kinds whose oldest waiting tasks are discarded, or soon may be: at least half of the limit waits.
-- Locks nothing. Reads the small table of limits; a count is one row of its key.
select o.kind
  from taskledger.overload o
 where o.policy = 'discard_oldest' and 2 * o.waiting >= o.max_waiting
