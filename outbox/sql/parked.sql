-- How many events could not be published, as far as $1 + 1, and the reason of the last one.
select count(*), coalesce((select l.reason from taskledger.parked l order by l.position desc limit 1), '')
  from (select from taskledger.parked limit $1::integer + 1) p
