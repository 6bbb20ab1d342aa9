-- Selects the limits of starts that apply to some kinds, by kind and name.
-- $1 kinds; $2 most rows. Returns the kind, the name of the limit, all of its kinds with their weights, per ('': none),
-- max_running (-1: none), rate (0: none), its period in seconds and its burst.
-- Locks nothing. Reads two small tables.
select k.kind, l.name, l.kinds, l.weights, coalesce(l.per, ''), coalesce(l.max_running, -1), coalesce(l.rate, 0),
       coalesce(l.period_s, 0), coalesce(l.burst, 0)
  from taskledger_internal.limited_kinds k
  join taskledger.start_limits l on l.name = k.name
 where k.kind = any ($1::text[])
 order by k.kind, l.name
 limit $2::bigint
