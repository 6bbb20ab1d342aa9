-- What the stream was like when the relay last noted how far it has got: its creation, the
-- number of losses, and whether work messages are still owed after one.
-- Locks nothing. Index: primary key, backwards.
select c.mark->>'stream_created', (c.mark->>'generation')::bigint, c.mark->'owed' is not null
  from taskledger.cursor c
 where c.reader = 'relay' and c.mark is not null
 order by c.n desc
 limit 1
