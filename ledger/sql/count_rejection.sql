-- Counts an enqueue that is rejected since too many tasks of its kind wait, for all that enqueue.
-- The count stays if the transaction is rolled back. Locks nothing.
select taskledger.count_rejection()
