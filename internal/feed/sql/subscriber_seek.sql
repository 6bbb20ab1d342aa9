-- Moves a subscriber, and creates it if it is missing.
-- $1 name; $2 position of the event before its place, 0 for the beginning, -1 for none; $3 time in microseconds since
-- 1970, 0 for none. With neither it is the present. $4 1 if an existing subscriber keeps its place, else 0.
-- Returns false if it kept its place.
-- Locks as taskledger_internal.lock_cursor. Indexes: as taskledger_internal.place.
select taskledger.seek_feed($1::text, nullif($2::bigint, -1),
                            timestamptz 'epoch' + nullif($3::bigint, 0) * interval '1 microsecond', $4::bigint = 1)
