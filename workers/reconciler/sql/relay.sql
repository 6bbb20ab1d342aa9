-- Selects the stream as of the relay's last mark: when it was created, how many losses there were plus 1, and
-- whether the relay still has to republish messages after one.
-- Locks nothing. Index: primary key of cursor, backwards.
select m.stream_created, m.generation, m.is_repairing
  from taskledger.relay_mark m
 where m.generation is not null
 order by m.n desc
 limit 1
