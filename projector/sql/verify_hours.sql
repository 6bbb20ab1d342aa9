-- Hours of kinds whose sums in kind_hour and in kind_stats differ, with both as texts, '' for none.
-- $1 maximum number of rows. Locks nothing. Index: none, both tables are read.
select s.kind, (extract(epoch from s.hour) * 1e6)::bigint, coalesce(s.in_hours, ''), coalesce(s.in_minutes, '')
  from (
   select kind, hour, h.numbers as in_hours, m.numbers as in_minutes
     from (
      select a.kind, a.hour,
             format('enqueued %s, started %s, succeeded %s, failed %s, dead %s, cancelled %s', sum(a.enqueued),
                    sum(a.started), sum(a.succeeded), sum(a.failed), sum(a.dead), sum(a.cancelled)) as numbers
        from taskledger.kind_hour a
       group by 1, 2) h
     full join (
      select b.kind, date_bin('1 hour', b.minute, 'epoch') as hour,
             format('enqueued %s, started %s, succeeded %s, failed %s, dead %s, cancelled %s', sum(b.enqueued),
                    sum(b.started), sum(b.succeeded), sum(b.failed), sum(b.dead), sum(b.cancelled)) as numbers
        from taskledger.kind_stats b
       group by 1, 2) m using (kind, hour)) s
 where s.in_hours is distinct from s.in_minutes
 order by s.hour, s.kind
 limit $1::integer
