-- Serializes workers that take their first lease, so that of two workers that exclude each other the later one
-- sees the other. Locks a row until the end of the transaction. Index: primary key.
select taskledger.lock_workers()
