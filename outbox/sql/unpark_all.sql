-- Empties the list of parked events, and keeps those that are never to be published.
-- Locks the rows. Index: parked_waiting.
delete from taskledger.parked p where not p.discarded
