-- Selects the live NATS servers of this database, a single server or the members of a cluster: the address, the CA of
-- the certificate or '', and whether the process is connected to this very database.
-- Locks nothing. Reads the whole small table.
select b.address, coalesce(b.ca, ''), b.is_here
  from taskledger.broker b
 where b.is_alive and b.address is not null
 order by b.member
