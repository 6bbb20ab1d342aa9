-- Raises the floor to the last position. The caller blocks all writers of events, so every event up to there is
-- committed. Locks the row. Index: (position), backwards.
insert into taskledger.floor (position, raised_at)
select coalesce(max(e.position), 0), clock_timestamp() from taskledger.event e
    on conflict (one) do update
   set position = excluded.position, origin = excluded.origin, xid = excluded.xid, raised_at = excluded.raised_at
