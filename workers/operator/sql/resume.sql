-- Ends the pause of a kind.
-- $1 kind. Deletes a row if the kind was paused. Locks its row. Index: primary key.
delete from taskledger.pause p where p.kind = $1::text
