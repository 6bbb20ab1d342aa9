-- Counts the parked events, and selects the reason of the last one.
-- $1 greatest count; the answer is one more if there are more. Locks nothing. Index: primary key.
select count(*), coalesce((select l.reason from taskledger.parked l order by l.position desc limit 1), '')
  from (select from taskledger.parked limit $1::integer + 1) p
