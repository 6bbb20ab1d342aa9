-- The last position that is visible, the end of the snapshot that sees it, and the installation of the ledger.
-- Locks nothing. Index: (position), backwards.
select coalesce((select e.position from taskledger.event e order by e.position desc limit 1), 0),
       pg_snapshot_xmax(pg_current_snapshot())::text, taskledger_internal.installation()
