-- Returns the number of events that do not fold. No parameters. Takes no locks.
select count(*)::integer from taskledger.illegal_event
