-- Selects the NATS servers whose process sleeps: the address, and the CA of the certificate or ''. The session of a
-- process that has just begun to sleep may still end, so is_here does not matter.
-- Locks nothing. Reads the whole small table.
select b.address, coalesce(b.ca, '')
  from taskledger.broker b
 where b.is_asleep and b.address is not null
 order by b.member
