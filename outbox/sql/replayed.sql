-- Selects the cursor row from which to publish all events again: the oldest one from row $1 on after which the relay
-- passed at most $2 positions.
-- Returns n, or no row. Locks nothing. Index: primary key of cursor.
select m.n
  from taskledger.relay_mark m
 where m.n >= $1::bigint
   and m.top >= (select l.top from taskledger.relay_mark l order by l.n desc limit 1) - $2::bigint
 order by m.n
 limit 1
