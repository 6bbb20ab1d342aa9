-- Removes leases that ended a day ago. A missing lease means the same as an ended one; the day is for operators.
-- Locks the rows it removes, and skips rows that another transaction has locked. Reads the whole small table.
delete from taskledger.lease l
 where l.name in (
   select d.name from taskledger.lease d
    where (d.name like 'worker/%' or d.name like 'shards/%' or d.name like 'released/%')
      and d.alive_until < clock_timestamp() - interval '1 day'
      for update skip locked)
