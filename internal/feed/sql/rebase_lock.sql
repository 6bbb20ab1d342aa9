-- Waits for the open transactions that have written events or cursor rows, and blocks others until the end of this one.
-- Locks the tables event and cursor in mode share row exclusive.
lock table taskledger.event, taskledger.cursor in share row exclusive mode
