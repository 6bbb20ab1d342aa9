-- Selects the last holder of the relay's lease, and why it cannot work. Locks nothing. Index: primary key.
select l.holder, (extract(epoch from l.since) * 1e6)::bigint, (extract(epoch from l.alive_until) * 1e6)::bigint,
       l.alive_until > clock_timestamp(),
       coalesce(l.detail->>'note', ''), (extract(epoch from (l.detail->>'since')::timestamptz) * 1e6)::bigint,
       coalesce((l.detail->>'refused')::boolean, false)
  from taskledger.lease l
 where l.name = 'relay'
