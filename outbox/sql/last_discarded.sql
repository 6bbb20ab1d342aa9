-- Selects the last position of an event that an operator has discarded, else 0.
-- Locks nothing. Index: parked_discarded, backwards.
select coalesce((select p.position from taskledger.parked p where p.discarded order by p.position desc limit 1), 0)
