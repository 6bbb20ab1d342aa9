-- Counts the committed events that a reader has not passed, and selects when the oldest of them was recorded and
-- its age in microseconds. A reader without a cursor, or with one of another database, has passed none.
-- $1 reader, $2 greatest count. Locks nothing. Indexes: see taskledger_internal.feed_lag.
select w.events, (extract(epoch from w.oldest) * 1e6)::bigint,
       coalesce(extract(epoch from clock_timestamp() - w.oldest) * 1e6, 0)::bigint
  from taskledger_internal.feed_lag($1::text, $2::integer) w
