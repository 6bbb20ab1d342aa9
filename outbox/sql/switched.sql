-- Selects since when the database has its timeline, by the relay's cursor rows: when the first one was written in it,
-- or now. Null if no row is of another timeline: the database did not fail over since the oldest row.
-- Locks nothing. Index: primary key of cursor, which it reads for the relay.
select case
         when exists (select from taskledger.relay_mark m where m.timeline <> taskledger.timeline())
         then (extract(epoch from coalesce((select min(m.recorded_at)
                                              from taskledger.relay_mark m
                                             where m.timeline = taskledger.timeline()),
                                           clock_timestamp())) * 1e6)::bigint
       end
