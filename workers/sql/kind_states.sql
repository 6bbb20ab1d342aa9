-- Selects the kinds that are paused, and those whose oldest waiting tasks are discarded, or soon may be: at least half
-- of the limit waits. Returns kind, and whether it is the first or the second; a kind may be both.
-- Locks nothing. Reads the small tables of pauses and of limits; a count is one row of its key.
select p.kind, true as is_paused
  from taskledger.paused_kinds p
union all
select o.kind, false
  from taskledger.overload o
 where o.policy = 'discard_oldest' and 2 * o.waiting >= o.max_waiting
