-- Selects the last holder of the relay's lease, why it cannot work, the server process of the holder's connection, and
-- whether that has ended. Locks nothing. Index: primary key of lease.
select l.holder, (extract(epoch from l.since) * 1e6)::bigint, (extract(epoch from l.alive_until) * 1e6)::bigint,
       l.is_alive and not l.is_ahead, coalesce(l.note, ''), coalesce(l.note_cause, ''),
       (extract(epoch from l.note_since) * 1e6)::bigint, l.is_refusing, l.backend, l.is_gone
  from taskledger_internal.relay_lease l
