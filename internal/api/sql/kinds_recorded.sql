-- At most $1 kinds of the events.
-- Locks nothing. Indexes: primary key, in a loose scan whose cost grows with the number of kinds, not of tasks.
with recursive recorded(kind, i) as (
  (select e.kind, 1 from taskledger.event e where e.kind > '' order by e.kind limit 1)
  union all
  select e.kind, r.i + 1
    from recorded r
   cross join lateral (select n.kind from taskledger.event n where n.kind > r.kind order by n.kind limit 1) e
   where r.i < $1::integer
)
select r.kind from recorded r
