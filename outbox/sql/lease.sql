-- Selects the last holder of the relay's lease, and why it cannot work. Locks nothing. Index: primary key.
select l.holder, l.since, l.alive_until, l.alive_until > clock_timestamp(),
       coalesce(l.detail->>'note', ''), (l.detail->>'since')::timestamptz,
       coalesce((l.detail->>'refused')::boolean, false)
  from taskledger.lease l
 where l.name = 'relay'
