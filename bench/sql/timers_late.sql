-- Returns how late the tasks of a kind were released, in milliseconds: p50, p99 and the longest.
-- $1 kind. Takes no locks. Needs event's primary key.
select percentile_cont(0.5) within group (order by l.late),
       percentile_cont(0.99) within group (order by l.late),
       max(l.late)
  from (select extract(epoch from e.recorded_at - (e.data->>'due_at')::timestamptz)::double precision * 1000 as late
          from taskledger.event e
         where e.kind = $1::text and e.type = 'released') l
