-- Raises the floor to the last position. The caller blocks all writers of events, so every event up to there is
-- committed. Locks the row. Index: (position), backwards.
insert into taskledger.floor (position)
select coalesce(max(e.position), 0) from taskledger.event e
    on conflict (one) do update
   set position = excluded.position, origin = excluded.origin, xid = excluded.xid
