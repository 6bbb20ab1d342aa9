-- Selects the paused kinds. Locks nothing. Reads the whole small table.
select p.kind from taskledger.paused_kinds p
