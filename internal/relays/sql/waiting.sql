-- Counts the events that the relay has not published, and selects when the oldest of them was recorded and its age in
-- milliseconds. The set equals the view taskledger.outbox. Without a cursor of this database, all events wait.
-- $1 greatest count. Locks nothing. Indexes: see taskledger_internal.feed_lag.
select w.events, (extract(epoch from w.oldest) * 1e6)::bigint,
       coalesce(floor(extract(epoch from clock_timestamp() - w.oldest) * 1000), 0)::bigint
  from taskledger_internal.feed_lag('relay', $1::integer) w
