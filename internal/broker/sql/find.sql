-- Selects the NATS server of this database: its address, the CA of its certificate or '', whether its lease is alive,
-- and whether its process is connected to this very database.
-- Locks nothing. Index: primary key.
select coalesce(b.address, ''), coalesce(b.ca, ''), b.is_alive, b.is_here
  from taskledger.broker b
