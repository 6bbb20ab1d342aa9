-- Who works as relay, or did last, and what keeps it from working.
select l.holder, l.since, l.alive_until, l.alive_until > clock_timestamp(),
       coalesce(l.detail->>'note', ''), (l.detail->>'since')::timestamptz, coalesce((l.detail->>'refused')::boolean, false)
  from taskledger.lease l
 where l.name = 'relay'
