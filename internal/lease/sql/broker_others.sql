-- Selects the holder and the peers of a server that prevents this one from running, because its peers differ. $1 peers,
-- or '', $2 true: include a server that no client may use because most of its peers are unavailable.
-- Returns at most one row. Locks nothing. Reads the whole small table.
select b.holder, coalesce(b.peers, '')
  from taskledger.broker b
 where b.is_alive and b.is_here and (b.address is not null or $2::text::boolean)
   and coalesce(b.peers, '') <> $1::text
 order by b.since
 limit 1
