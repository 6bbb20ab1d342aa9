-- Ends an attempt without a failure.
-- $1 kind, $2 biz_id, $3 version of the last event, $4 delay in microseconds or null, $5 time or null.
-- Locks nothing. Indexes: primary key, event_long.
select taskledger.snooze($1::text, $2::text, $3::bigint::integer, run_at => $5::text::timestamptz,
                         run_in => $4::bigint * interval '1 microsecond')
