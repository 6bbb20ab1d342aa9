-- The stream when the relay last wrote its mark: when it was created, how many losses there were, and whether
-- the relay still has to republish messages after one.
-- Locks nothing. Index: primary key, backwards.
select c.mark->>'stream_created', (c.mark->>'generation')::bigint, c.mark->'owed' is not null
  from taskledger.cursor c
 where c.reader = 'relay' and c.mark is not null
 order by c.n desc
 limit 1
