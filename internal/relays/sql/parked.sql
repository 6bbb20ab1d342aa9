-- Counts the parked events that are not discarded, and selects when the first was parked and the reason of the last.
-- $1 greatest count; the answer is one more if there are more. Locks nothing. Index: parked_waiting.
select count(*), (extract(epoch from min(p.parked_at)) * 1e6)::bigint,
       coalesce((select l.reason from taskledger.parked l where not l.discarded order by l.position desc limit 1), '')
  from (select e.parked_at from taskledger.parked e where not e.discarded order by e.position limit $1::integer + 1) p
