-- Defers constraints that can be deferred to the commit again. No parameters. Takes no locks.
set constraints all deferred
