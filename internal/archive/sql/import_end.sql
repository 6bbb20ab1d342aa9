-- Checks the imported events, and sets their timers, see the function: the number of timers.
-- Locks nothing. Reads all events.
select taskledger_internal.end_import()
