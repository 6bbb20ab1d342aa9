-- Removes what dead workers left behind. A lease that is missing means the same as one that
-- ended, so nothing is lost; a day is left for people to look.
-- Locks the rows it removes, none that somebody else holds. Reads the whole small table.
delete from taskledger.lease l
 where l.name in (
   select d.name from taskledger.lease d
    where (d.name like 'worker/%' or d.name like 'shards/%') and d.alive_until < clock_timestamp() - interval '1 day'
      for update skip locked)
