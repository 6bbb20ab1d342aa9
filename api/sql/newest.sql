-- The position of the newest event, 0 in an empty ledger.
-- Locks nothing. Index: primary key of the position.
select coalesce((select e.position from taskledger.event e order by e.position desc limit 1), 0)
