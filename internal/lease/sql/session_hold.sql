-- Records the attempts that a process of a worker over HTTP holds.
-- $1 name of the session; $2 numbers of attempts, a text array literal; $3 duration in milliseconds.
-- Locks the session's row. Index: primary key.
select taskledger_internal.hold_session($1::text, $2::text::text[], $3::bigint)
