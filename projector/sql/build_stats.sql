-- Returns the statements that merge the rows of each kind and minute of a new table, in the order of minutes, and sum
-- them by hour.
-- $1 schema. Locks nothing.
-- The rows are read by an index and not sorted: they contain histograms, and a sort of all buckets takes more room than
-- the ledger. If a kind and minute has one row, as usual, its histograms are copied unchanged.
select s.statement
  from (values
    (1, format('create table %1$I.merged (like %1$I.kind_stats)', $1::text)),
    (2, format('create index merging on %1$I.kind_stats (minute, kind)', $1::text)),
    (3, 'set local enable_sort to off'),
    (4, format('insert into %1$I.merged
       (minute, kind, enqueued, started, succeeded, failed, dead, cancelled, waiting, running, first_position,
        last_position)
select t.minute, t.kind, t.enqueued, t.started, t.succeeded, t.failed, t.dead, t.cancelled,
       case when t.n = 1 then t.waiting else (
         select array_agg(b.n order by b.i)
           from (
            select u.i, sum(u.n)::bigint as n
              from %1$I.kind_stats g
             cross join lateral unnest(g.waiting) with ordinality u(n, i)
             where g.minute = t.minute and g.kind = t.kind
             group by u.i) b) end,
       case when t.n = 1 then t.running else (
         select array_agg(b.n order by b.i)
           from (
            select u.i, sum(u.n)::bigint as n
              from %1$I.kind_stats g
             cross join lateral unnest(g.running) with ordinality u(n, i)
             where g.minute = t.minute and g.kind = t.kind
             group by u.i) b) end,
       t.first_position, t.last_position
  from (
   select s.minute, s.kind, count(*) as n, sum(s.enqueued) as enqueued, sum(s.started) as started,
          sum(s.succeeded) as succeeded, sum(s.failed) as failed, sum(s.dead) as dead, sum(s.cancelled) as cancelled,
          min(s.waiting) as waiting, min(s.running) as running, min(s.first_position) as first_position,
          max(s.last_position) as last_position
     from %1$I.kind_stats s
    group by s.minute, s.kind
    order by s.minute, s.kind) t', $1::text)),
    (5, 'set local enable_sort to default'),
    (6, format('drop index %I.merging', $1::text)),
    (7, format('truncate %I.kind_stats', $1::text)),
    (8, format('insert into %1$I.kind_stats (minute, kind, enqueued, started, succeeded, failed, dead, cancelled,
                                             waiting, running, first_position, last_position)
select m.minute, m.kind, m.enqueued, m.started, m.succeeded, m.failed, m.dead, m.cancelled, m.waiting, m.running,
       m.first_position, m.last_position
  from %1$I.merged m', $1::text)),
    (9, format('drop table %I.merged', $1::text)),
    (10, format('truncate %I.kind_hour', $1::text)),
    (11, format('insert into %1$I.kind_hour (hour, kind, enqueued, started, succeeded, failed, dead, cancelled)
select date_bin(''1 hour'', s.minute, ''epoch''), s.kind, sum(s.enqueued), sum(s.started), sum(s.succeeded),
       sum(s.failed), sum(s.dead), sum(s.cancelled)
  from %1$I.kind_stats s
 group by 1, 2', $1::text))) s(i, statement)
 order by s.i
