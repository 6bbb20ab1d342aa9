-- Ends the pause of a kind.
-- $1 kind. Returns a row if the kind was paused. Locks its row. Index: primary key.
select r.kind from taskledger_internal.remove_pause($1::text) r(kind)
