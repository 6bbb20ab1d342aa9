-- Forgets the archived keys of a batch whose time is over, and returns their number, null if none is due.
-- $1 actor and $2 reason, or null. Locks the archive. Indexes: primary keys.
select f.keys from taskledger_internal.forget_keys($1::text, $2::text) f
