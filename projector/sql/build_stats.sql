-- Returns the statements that merge the rows of each kind and minute of a new table.
-- $1 schema. Locks nothing.
select s.statement
  from (values
    (1, format('create table %1$I.merged (like %1$I.kind_stats)', $1::text)),
    (2, format('insert into %1$I.merged
       (minute, kind, enqueued, started, succeeded, failed, dead, cancelled, waiting, running)
with bucket as (
  select s.minute, s.kind, h.name, u.i, sum(u.n)::bigint as n
    from %1$I.kind_stats s
   cross join lateral (values (''waiting'', s.waiting), (''running'', s.running)) h(name, counts)
   cross join lateral unnest(h.counts) with ordinality u(n, i)
   group by s.minute, s.kind, h.name, u.i
), histogram as (
  select b.minute, b.kind, array_agg(b.n order by b.i) filter (where b.name = ''waiting'') as waiting,
         array_agg(b.n order by b.i) filter (where b.name = ''running'') as running
    from bucket b
   group by b.minute, b.kind
), number as (
  select s.minute, s.kind, sum(s.enqueued) as enqueued, sum(s.started) as started, sum(s.succeeded) as succeeded,
         sum(s.failed) as failed, sum(s.dead) as dead, sum(s.cancelled) as cancelled
    from %1$I.kind_stats s
   group by s.minute, s.kind
)
select n.minute, n.kind, n.enqueued, n.started, n.succeeded, n.failed, n.dead, n.cancelled, h.waiting, h.running
  from number n
  left join histogram h on h.minute = n.minute and h.kind = n.kind', $1::text)),
    (3, format('truncate %I.kind_stats', $1::text)),
    (4, format('insert into %1$I.kind_stats (minute, kind, enqueued, started, succeeded, failed, dead, cancelled,
                                             waiting, running)
select m.minute, m.kind, m.enqueued, m.started, m.succeeded, m.failed, m.dead, m.cancelled, m.waiting, m.running
  from %1$I.merged m order by m.minute, m.kind', $1::text)),
    (5, format('drop table %I.merged', $1::text))) s(i, statement)
 order by s.i
