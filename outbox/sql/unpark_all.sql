-- Empties the list of parked events. Locks the table until the end of the transaction.
truncate taskledger.parked
