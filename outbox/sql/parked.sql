-- Counts the parked events, and selects when the first was parked and the reason of the last.
-- $1 greatest count; the answer is one more if there are more. Locks nothing. Index: primary key.
select count(*), (extract(epoch from min(p.parked_at)) * 1e6)::bigint,
       coalesce((select l.reason from taskledger.parked l order by l.position desc limit 1), '')
  from (select e.parked_at from taskledger.parked e order by e.position limit $1::integer + 1) p
