-- Sets how long serve keeps the finished tasks of a kind, and records it.
-- $1 kind, $2 microseconds or null, $3 1 to keep them forever ($2 null and 0: as long as other kinds' tasks),
-- $4 actor and $5 reason, or null. Locks the row. Index: primary key.
select taskledger_internal.set_archive($1::text, $2::bigint * interval '1 microsecond', $3::bigint = 1, $4::text,
                                       $5::text)
