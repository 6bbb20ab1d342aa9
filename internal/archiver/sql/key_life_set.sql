-- Sets how long the archived keys of a kind stay known, and records it.
-- $1 kind, $2 microseconds, null for forever, $3 actor and $4 reason, or null. Locks the row. Index: primary key.
select taskledger_internal.set_key_life($1::text, $2::bigint * interval '1 microsecond', $3::text, $4::text)
