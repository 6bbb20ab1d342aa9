-- Ends the pause of a kind.
-- $1 kind. Returns a row if the kind was paused. Locks its row. Index: primary key.
select true where taskledger_internal.unset('pause', $1::text)
