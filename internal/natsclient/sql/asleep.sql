-- Selects the NATS servers whose process sleeps: the address, and the CA of the certificate or ''.
-- Locks nothing. Reads the whole small table.
select b.address, coalesce(b.ca, '')
  from taskledger.broker b
 where b.is_asleep and not b.is_here and b.address is not null
 order by b.member
