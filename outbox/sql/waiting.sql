-- How many events the relay has not published yet, as far as $1 + 1, and how old the oldest of
-- them is in milliseconds.
-- $1 where to stop counting. Locks nothing. The order keeps the planner on the index on
-- (position), so that the cost is that of the events counted, however many lie behind.
select count(*), coalesce(floor(extract(epoch from clock_timestamp() - min(w.recorded_at)) * 1000), 0)::bigint
  from (
   select o.recorded_at
     from taskledger.outbox o
    order by o.position
    limit $1::integer + 1) w
