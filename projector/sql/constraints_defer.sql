-- Has constraints that can be deferred checked at the commit again. No parameters. Takes no locks.
set constraints all deferred
