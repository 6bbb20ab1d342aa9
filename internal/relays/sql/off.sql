-- Selects whether the stream is off. Locks nothing. Index: primary key of lease.
select exists (
  select from taskledger_internal.relay_lease l where l.note_cause = 'off' and not (l.is_alive and not l.is_ahead))
