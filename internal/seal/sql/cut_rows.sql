-- Removes rows of the seal, and returns how many leaves they had; 0 if another run has removed them.
-- $1 last batch, $2 leaves up to its end, $3 partial tiles of their tree in hexadecimal, $4 archive with the full
-- tiles, $5 actor and $6 reason, or null. Locks the archive and the seal. Indexes: as taskledger_internal.cut_seal.
select taskledger_internal.cut_seal($1::bigint, $2::bigint, $3::text, $4::text, $5::text, $6::text)
