-- Selects paused kinds, by name: kind; since when, by whom and why.
-- $1 the kind after which the list begins, '' for the first one; $2 most kinds.
-- Locks nothing. Index: primary key of pause.
select p.kind, (extract(epoch from p.since) * 1e6)::bigint, p.actor, p.reason
  from taskledger.pause p
 where p.kind > $1::text
 order by p.kind
 limit $2::bigint
