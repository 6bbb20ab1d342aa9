-- Ends the pause of a kind.
-- $1 kind. Returns a row if the kind was paused. Locks its row. Index: primary key.
delete from taskledger.setting s where s.name = 'paused/' || $1::text returning s.value
