-- Gives the database an incarnation if it has none: the first time, after a crash, and after a restore.
-- Locks the row; waits for a concurrent call.
select taskledger_internal.begin_incarnation()
