-- Events without a position, which are in no range of positions: at most a number of them.
-- $1 number of events. Locks nothing. Index: (position), from its end, where nulls are. The catalogue, which an owner
-- can change, may exclude nulls; a newer planner then takes "is null" for false.
select e.kind, e.biz_id, e.version
  from (
   select n.position, n.kind, n.biz_id, n.version from taskledger.event n
    order by n.position desc nulls first
    limit $1::bigint) e
 where num_nulls(e.position) = 1
