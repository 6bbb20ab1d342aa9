-- Returns the last position of the ledger, 0 if it is empty. Locks nothing. Index: position.
select coalesce((select e.position from taskledger.event e order by e.position desc limit 1), 0)
