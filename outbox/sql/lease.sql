-- Selects the last holder of the relay's lease, and why it cannot work. Locks nothing. Index: primary key of lease.
select l.holder, l.since, l.alive_until, l.is_alive, coalesce(l.note, ''), l.note_since, l.is_refusing
  from taskledger.relay_lease l
