-- Returns how many firings have not been counted. No parameters. Takes no locks.
select count(*)
  from taskledger.event e
 where e.kind = 'till.count' and e.version = 1
   and not exists (select from taskledger.event s
                    where s.kind = e.kind and s.biz_id = e.biz_id and s.type = 'succeeded')
