-- Returns whether a relay has started and has relayed every event. No parameters. Takes no locks.
select exists (select from taskledger.cursors where reader = 'relay')
   and not exists (select from taskledger.outbox)
