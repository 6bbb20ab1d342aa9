-- Who works as relay, or did last.
select l.holder, l.since, l.alive_until, l.alive_until > clock_timestamp(), coalesce(l.detail->>'note', '')
  from taskledger.lease l
 where l.name = 'relay'
