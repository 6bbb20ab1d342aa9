-- Returns whether a relay has started and has relayed every event, and why it has not been able to for ten seconds.
-- No parameters. Takes no locks.
select exists (select from taskledger.cursors where reader = 'relay')
   and not exists (select from taskledger.outbox),
       coalesce((select l.note from taskledger_internal.relay_lease l
                  where l.note_since < now() - interval '10 seconds'), '')
