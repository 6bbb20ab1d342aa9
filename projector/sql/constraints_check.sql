-- Checks the deferred constraints of what the transaction has written so far. No parameters. Takes no locks.
set constraints all immediate
