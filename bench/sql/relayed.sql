-- Whether a relay has begun and left nothing to relay. No parameters.
select exists (select from taskledger.cursor where reader = 'relay')
   and not exists (select from taskledger.outbox)
