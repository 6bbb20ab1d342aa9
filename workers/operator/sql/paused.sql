-- Selects the paused kinds, by name: kind; since when, by whom and why.
-- Locks nothing. Reads the whole small table.
select p.kind, (extract(epoch from p.since) * 1e6)::bigint, p.actor, p.reason from taskledger.pause p order by p.kind
