-- Empties the list of parked events, and keeps the discarded ones.
-- Locks the rows. Index: parked_waiting.
delete from taskledger.parked p where not p.discarded
