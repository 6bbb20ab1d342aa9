-- Lists the schedules that have passed over firings, by name.
-- Locks nothing. Reads the whole small table, without the args of its rows.
select s.name, s.passed, (extract(epoch from s.passed_at) * 1e6)::bigint
  from taskledger.schedule s
 where s.passed_at is not null
 order by s.name
