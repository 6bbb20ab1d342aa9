-- Removes the limit of a kind.
-- $1 kind. Locks the row of the kind. Index: primary key.
delete from taskledger.kind_limit l where l.kind = $1::text
