-- Selects the number of tasks by kind and state, sorted by both, of the first kinds after one, without zeros.
-- $1 the kind after which the list begins, '' for the first one; $2 most kinds.
-- Locks nothing. Index: primary key of task_count, by a loose scan: a few rows of each kind of the list.
with recursive kind as (
  (select c.kind from taskledger.task_count c where c.kind > $1::text order by c.kind limit 1)
  union all
  select (select c.kind from taskledger.task_count c where c.kind > k.kind order by c.kind limit 1)
    from kind k
   where k.kind is not null
), listed as (
  select k.kind, t.states, t.totals
    from kind k
   cross join lateral (
     select array_agg(s.state::text) as states, array_agg(n.value) as totals
       from unnest(enum_range(null::taskledger.task_state)) s(state)
      cross join lateral (
        select c.value from taskledger.task_count c
         where c.kind = k.kind and c.state = s.state
         order by c.n desc
         limit 1) n
      where n.value <> 0) t
   where k.kind is not null and t.states is not null
   limit $2::bigint
)
select l.kind, t.state, t.total
  from listed l
 cross join lateral unnest(l.states, l.totals) t(state, total)
 order by l.kind, t.state::taskledger.task_state
