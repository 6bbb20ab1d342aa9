-- The next rows of the seal that may be removed, at most 64, if at least half of their events are archived: the last
-- batch, and the leaves up to its end. The last row of all stays.
-- $1 leaves of the tree whose tiles an archive contains. Locks nothing. Indexes: primary key of seal, (position) of
-- event.
select c.last, c.leaves
  from (
   select max(b.batch) as last, max(b.first_leaf + cardinality(b.positions)) as leaves,
          sum(cardinality(b.positions)) as events, sum(e.events) as remaining
     from (
      select s.batch, s.first_leaf, s.positions
        from taskledger.seal s
       where s.batch < (select max(l.batch) from taskledger.seal l)
         and s.top <= taskledger_internal.archived_until()
       order by s.batch
       limit 64) b
    cross join lateral (
      select count(n.position) as events
        from unnest(b.positions) p(position)
        left join lateral (
          select v.position from taskledger.event v where v.position = p.position limit 1) n on true) e
    where b.first_leaf + cardinality(b.positions) <= $1::bigint) c
 where c.remaining * 2 <= c.events
