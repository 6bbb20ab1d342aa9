-- Checks the deferred constraints of the rows that the transaction has written so far. No parameters. Takes no locks.
set constraints all immediate
