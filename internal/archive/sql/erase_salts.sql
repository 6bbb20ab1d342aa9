-- Replaces the salts of archived events with digests, see the function: their number.
-- $1 positions, $2 digests in hexadecimal (array literals of one length). Locks the seal.
select taskledger_internal.erase_salts_at($1::text::bigint[], $2::text::text[])
