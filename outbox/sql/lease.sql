-- Selects the last holder of the relay's lease, and why it cannot work. Locks nothing. Index: primary key of lease.
select l.holder, (extract(epoch from l.since) * 1e6)::bigint, (extract(epoch from l.alive_until) * 1e6)::bigint,
       l.is_alive, coalesce(l.note, ''), coalesce(l.note_cause, ''),
       (extract(epoch from l.note_since) * 1e6)::bigint, l.is_refusing
  from taskledger.relay_lease l
