-- Selects the holder and the peers of a server that keeps another one from running: it has other peers.
-- $1 peers, or ''.
-- Returns at most one row. Locks nothing. Reads the whole small table.
select b.holder, coalesce(b.peers, '')
  from taskledger.broker b
 where b.is_alive and b.is_here and b.address is not null and coalesce(b.peers, '') <> $1::text
 order by b.since
 limit 1
