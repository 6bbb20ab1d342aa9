-- Selects the holder and the peers of a server that keeps another one from running: it has other peers.
-- $1 peers, or '', $2 true: also of one that no client may use, because most of its peers are away.
-- Returns at most one row. Locks nothing. Reads the whole small table.
select b.holder, coalesce(b.peers, '')
  from taskledger.broker b
 where b.is_alive and b.is_here and (b.address is not null or $2::text::boolean)
   and coalesce(b.peers, '') <> $1::text
 order by b.since
 limit 1
