-- Counts the events that the relay has not published, and selects when the oldest of them was recorded and its
-- age in milliseconds. The set is that of the view taskledger.outbox. Without a cursor of this database, all events
-- wait.
-- $1 greatest count of each of three groups. Locks nothing. Indexes: see taskledger.feed_pending.
select count(*), (extract(epoch from min(w.recorded_at)) * 1e6)::bigint,
       coalesce(floor(extract(epoch from clock_timestamp() - min(w.recorded_at)) * 1000), 0)::bigint
  from taskledger.feed_pending('relay', $1::integer) w
