-- The key that seals the fences of attempts over HTTP, in hexadecimal. The first call makes it.
-- Returns one row. Locks nothing, or the row that it inserts.
select encode(taskledger_internal.fence_key(), 'hex')
