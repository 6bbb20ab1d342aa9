-- Reads the role that the transaction has set, or none, and whether the concurrency of a kind is limited.
-- $1 kind. Returns one row. Locks nothing. Index: primary key.
select current_setting('role'), exists (select from taskledger_internal.limited_kinds l where l.kind = $1::text)
