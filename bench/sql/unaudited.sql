-- Returns the number of events that relay or projector have delivered and not audited, by their last
-- cursor rows. An idle reader writes none. No parameters. Takes no locks.
select coalesce(max(c.unaudited), 0)
  from taskledger.cursor c
 where c.reader in ('relay', 'projector')
   and c.n = (select max(n) from taskledger.cursor l where l.reader = c.reader)
