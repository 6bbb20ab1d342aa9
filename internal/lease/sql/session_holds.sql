-- For how many milliseconds a process of a worker over HTTP still holds an attempt, by its last heartbeat.
-- $1 name of the session; $2 number of the attempt.
-- Returns one row. Locks nothing. Index: primary key.
select taskledger_internal.session_holds_ms($1::text, $2::text)
