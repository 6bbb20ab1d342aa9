-- Ends an attempt with a failure.
-- $1 kind, $2 biz_id, $3 version of the last event, $4 error, $5 its type, $6 delay in microseconds or null, $7 whether
-- the error is permanent, $8 retry policy (JSON text) or null.
-- Returns the task's state. Locks nothing. Indexes: primary key, event_long.
select taskledger.fail($1::text, $2::text, $3::bigint::integer, $4::text, $5::text,
                       retry_in => $6::bigint * interval '1 microsecond', permanent => $7::text::boolean,
                       retry => $8::text::json)::text
