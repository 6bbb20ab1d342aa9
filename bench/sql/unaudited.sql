-- How many events relay and projector have delivered that one of them has not audited, as their last
-- cursor rows have it: an idle reader writes none. No parameters.
select coalesce(max(c.unaudited), 0)
  from taskledger.cursor c
 where c.n = (select max(n) from taskledger.cursor l where l.reader = c.reader)
